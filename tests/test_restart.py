"""Between two attempts on one store a learner or a table may change: refused, or no noise is lacking."""

import contextlib
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_data, tiny_world
from test_durable import FatalError, Mortal

import privrl
from privrl.contracts.learner import AbstractOfflineLearner, Solution
from privrl.contracts.release import Declared
from privrl.mdp.types import TabularPolicy
from privrl.privacy.noise.sources import System
from privrl.privacy.store.errors import StoreError, StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.privatizers import Central
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem
from privrl.statistics.counts import VisitCounts
from privrl.studies.offline.curated_records import Records

ENV = tiny_world()
DATA = tiny_data(ENV)
S, A, H = ENV.num_states, ENV.num_actions, ENV.horizon
PRIVATE = Central(epsilon=1.0, delta=1e-6)


class Hasty(AbstractOfflineLearner):
    """Three releases, of which the last may be given up for the one before it: a setting that no bound speaks of."""

    skips: bool = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=H)

    @property
    def space(self):
        return S, A

    def bounds(self):
        return {}

    def declare(self):
        visits = VisitCounts(S, A, H)
        return tuple(Declared(name, visits) for name in ("first", "second", "third"))

    def fit(self, ask):
        ask("first")
        if self.skips:
            ask.skip("third", to=("second",))
        ask("second")
        if not self.skips:
            ask("third")
        return Solution(TabularPolicy(jnp.full((H, S, A), 1 / A)))


def test_another_setting_of_the_learner_is_refused(tmp_path):
    with ReleaseStore(tmp_path / "s.db") as store:
        privrl.fit(DATA, Hasty(skips=True), PRIVATE, store=store)
    with ReleaseStore(tmp_path / "s.db") as store, pytest.raises(StudyMismatchError, match="`learner`"):
        privrl.fit(DATA, Hasty(skips=False), PRIVATE, store=store)


POINTS = ["fact:written", "reserve:begun", "reserve:written", "reserve:committed", "drawn", "persist:written"]


@pytest.mark.parametrize("after_crash", ["burn", "redraw"])
@pytest.mark.parametrize(
    "passage", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("point", POINTS)
def test_the_distributions_that_were_used_never_exceed_the_budget(tmp_path, point, passage, after_crash):
    """Killed in an attempt that skips and finished by one that does not, past the study's own check: whatever was
    drawn is within the total of mu^2, and every value has the noise that was reserved with it."""

    def attempt(skips, store):
        learner = Hasty(skips=skips)
        ledger = PRIVATE.calibrate(learner.declare())
        store.open_study({}, ledger.limits())
        learner.fit(Curator(Records(DATA.with_sizes(S, A)), ledger, System(), "gaussian", store))

    limit = sum(PRIVATE.calibrate(Hasty(skips=True).declare()).limits().values())
    with (
        contextlib.suppress(FatalError),  # not every point is passed that often
        Mortal(tmp_path / "s.db", point, passage, after_crash=after_crash) as store,
    ):
        attempt(True, store)
    with ReleaseStore(tmp_path / "s.db", after_crash=after_crash) as store:
        with contextlib.suppress(ValueError, StoreError):  # refused rather than drawn with less noise than reserved
            attempt(False, store)
        used = 0.0
        for row in store.describe()["releases"]:
            lattice = privrl.privacy.noise.lattice.Lattice.from_bytes(store.distribution(row["name"]))
            mu = lattice.sensitivity / lattice.granularity / np.sqrt(lattice.noise**2 - 4.0)
            assert mu**2 <= row["charge"] * (1 + 1e-9), row["name"]
            used += mu**2
        assert used <= limit * (1 + 1e-9)


def test_what_was_given_up_stays_given_up(tmp_path):
    """Lost, paid for by the others in an attempt that is lost too, and then finished by one that would draw again."""
    learner = Hasty(skips=False)
    for passage, mode in ((1, "burn"), (1, "burn")):
        with (
            contextlib.suppress(FatalError),
            Mortal(tmp_path / "s.db", "reserve:committed", passage, after_crash=mode) as store,
        ):
            privrl.fit(DATA, learner, PRIVATE, store=store)
    with ReleaseStore(tmp_path / "s.db", after_crash="redraw") as store:
        result = privrl.fit(DATA, learner, PRIVATE, store=store)
        spent, limits = store.describe()["spent"], store.describe()["limits"]
    assert sum(spent.values()) <= sum(limits.values()) * (1 + 1e-12)
    assert result.certificate.epsilon <= 1.0
    assert {release["burnt"] for release in result.certificate.releases} == {0, 1}


def table(ids, seed=0):
    rng = np.random.default_rng(seed)
    shape = (len(ids), H)
    rows = {name: rng.integers(0, size, (max(map(int, ids)) + 1, H)) for name, size in (("s", S), ("a", A), ("n", S))}
    mine = np.array([int(i) for i in ids])
    return privrl.data.Episodes.from_arrays(
        rows["s"][mine], rows["a"][mine], np.zeros(shape), rows["n"][mine], units=ids,
        horizon=H, num_states=S, num_actions=A,
    )  # fmt: skip


def split_fit(data, store):
    learner = dataclasses.replace(get("dp-vapvi").learner(Problem.of(ENV)), split=True)
    return privrl.fit(data, learner, Central(epsilon=3.0, delta=1e-5), store=store)


def test_a_person_inserted_on_top_moves_nobody_to_another_group(tmp_path):
    """The attack of old: killed after group A, one person inserted on top, started again."""
    before, after = [str(i) for i in range(1, 60)], [str(i) for i in range(60)]
    with pytest.raises(FatalError), Mortal(tmp_path / "s.db", "persist:committed", 2) as store:
        split_fit(table(before), store)
    with ReleaseStore(tmp_path / "s.db") as store:
        with pytest.raises(StudyMismatchError, match="added, removed or changed"):
            split_fit(table(after), store)
        key = store.secret("groups")
        coins = dict(zip(before, table(before).unit_draws(key, "groups"), strict=True))
        moved = dict(zip(after, table(after).unit_draws(key, "groups"), strict=True))
        assert coins == {name: moved[name] for name in before}  # and even then they would keep their groups
        split_fit(table(before), store)


def test_people_keep_their_group_wherever_their_rows_stand():
    ids = [str(i) for i in range(40)]
    straight, turned = table(ids), table(ids[::-1])
    key = bytes(range(32))
    by_id = dict(zip(ids, straight.unit_draws(key, "groups"), strict=True))
    assert by_id == dict(zip(ids[::-1], turned.unit_draws(key, "groups"), strict=True))
    assert by_id != dict(zip(ids, straight.unit_draws(key, "evaluation"), strict=True))
    numbers = table([int(i) for i in ids])
    np.testing.assert_array_equal(numbers.unit_draws(key, "groups"), straight.unit_draws(key, "groups"))


@pytest.mark.parametrize("change", ["reward", "missing", "again"])
def test_a_changed_table_is_refused(tmp_path, change):
    ids = [str(i) for i in range(1, 50)]
    with ReleaseStore(tmp_path / "s.db") as store:
        first = split_fit(table(ids), store)
    changed = {"reward": table(ids, seed=1), "missing": table(ids[:-1]), "again": table(ids[::-1])}[change]
    with ReleaseStore(tmp_path / "s.db") as store:
        if change == "again":  # the same people in another order are the same table
            np.testing.assert_array_equal(split_fit(changed, store).policy.probabilities, first.policy.probabilities)
        else:
            with pytest.raises(StudyMismatchError, match="added, removed or changed"):
                split_fit(changed, store)


def test_the_digest_stays_in_the_store(tmp_path, capsys):
    with ReleaseStore(tmp_path / "s.db") as store:
        result = split_fit(table([str(i) for i in range(1, 50)]), store)
        digest, shown = store.fact("digest of the data", bytes).hex(), store.describe()
    for text in (str(result.certificate), str(result.certificate.to_json()), str(shown), *capsys.readouterr()):
        assert digest not in text
    assert "pseudorandom function" in str(result.certificate)


SLOW = [
    pytest.param("dp-lsvi-ucb", name, marks=pytest.mark.slow) for name in ("honaker", "square-root", "tree", "fresh")
]


@pytest.mark.parametrize(("recipe", "continual"), [("dp-ucbvi", "honaker"), *SLOW])
def test_a_simulation_certifies_the_noise_that_its_channels_draw(recipe, continual):
    chosen = get(recipe)
    env = privrl.envs.RiverSwim(states=3, horizon=4)
    private = Central(epsilon=1.0, delta=1e-5, continual=continual)
    run = privrl.run(env, chosen.build(env), private, episodes=40, key=jax.random.key(0), flow=False)
    study = privrl.studies.study.Study.online(chosen.build(env), private, 40)
    for release in run.certificate.releases:
        sensitivity, scale = study.channels()[release["name"]].calibration
        assert release["noise"] == [{"sensitivity": sensitivity, "scale": scale, "times": 1}]
    assert not any(release["noise"] for release in study.ledger.releases())  # opening channels writes nothing
