"""`fit` and `Server` on a store: killed and started again, they go on; nothing is drawn twice, and all is counted."""

import os
import signal
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest
from contract import tiny_data, tiny_world

import privrl
from privrl.privacy.store.errors import BurntError, StoreError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem

ENV = tiny_world()
DATA = tiny_data(ENV)
BUDGET = {"epsilon": 3.0, "delta": 1e-5}


class FatalError(RuntimeError):
    """Stands for a crash inside one process."""


class Mortal(ReleaseStore):
    """A store whose process dies at the n-th passage of a point."""

    def __init__(self, path, point, after, **options):
        self.point, self.left = None, after
        super().__init__(path, **options)
        self.point = point

    def _reached(self, where):
        if where == self.point:
            self.left -= 1
            if self.left == 0:
                raise FatalError(where)


def fitted(recipe, store):
    chosen = get(recipe)
    return privrl.fit(DATA, chosen.learner(Problem.of(ENV)), chosen.privatizer(**BUDGET), store=store, unit="patient")


RECIPES = ["dp-apvi", "dp-pevi", "dp-vapvi", "dp-tdfp"]


@pytest.mark.parametrize("recipe", [pytest.param(r, marks=pytest.mark.slow) if r != "dp-tdfp" else r for r in RECIPES])
def test_a_second_fit_reads_what_the_first_released(tmp_path, recipe, monkeypatch):
    with ReleaseStore(tmp_path / "s.db") as store:
        first = fitted(recipe, store)
        before = store.describe()
    monkeypatch.setattr(
        privrl.privacy.noise.lattice.Lattice, "add_noise", lambda *_: pytest.fail("noise was drawn again")
    )
    with ReleaseStore(tmp_path / "s.db") as store:
        again = fitted(recipe, store)
        assert store.describe() == before
    np.testing.assert_array_equal(first.policy.probabilities, again.policy.probabilities)
    assert first.certificate == again.certificate
    for pool, limit in before["limits"].items():
        assert before["spent"].get(pool, 0.0) <= limit * (1 + 1e-12)


@pytest.mark.parametrize(
    "point",
    [
        "reserve:committed",
        *(pytest.param(other, marks=pytest.mark.slow) for other in ("drawn", "persist:written")),
        "persist:committed",
    ],
)
def test_a_crash_burns_or_keeps_the_release_and_the_certificate_counts_it(tmp_path, point):
    """In the third of PEVI's eight releases: kept if it was persisted, burnt otherwise, and epsilon stays."""
    with pytest.raises(FatalError), Mortal(tmp_path / "s.db", point, 3) as store:
        fitted("dp-pevi", store)
    with ReleaseStore(tmp_path / "s.db") as store:
        kept = {r["name"]: store.value(r["name"]) for r in store.describe()["releases"] if r["status"] == "released"}
        assert len(kept) == (3 if point == "persist:committed" else 2)
        result = fitted("dp-pevi", store)
        again = fitted("dp-pevi", store)
        shown = store.describe()
        for name, value in kept.items():
            np.testing.assert_array_equal(store.value(name), value)
    np.testing.assert_array_equal(result.policy.probabilities, again.policy.probabilities)
    burnt = [r["name"] for r in shown["releases"] if r["status"] == "burnt"]
    assert len(burnt) == (point != "persist:committed")
    made = {r["name"]: r for r in result.certificate.releases}
    assert sum(r["counted"] for r in made.values()) == 8 + len(burnt)
    assert sum(r["burnt"] for r in made.values()) == len(burnt)
    assert result.certificate.recomputed() <= result.certificate.epsilon <= 3.0
    assert result.certificate.mu == pytest.approx(privrl.privacy.gdp_mu(3.0, 1e-5))
    assert sum(shown["spent"].values()) == pytest.approx(sum(shown["limits"].values()))
    assert len(result.certificate.notes) == bool(burnt)
    if burnt:  # what came after pays for it
        scales = [noise["scale"] for noise in made[burnt[0].split("/")[0]]["noise"]]
        assert len(set(scales)) > 1


def test_the_last_release_cannot_be_made_again_unless_redrawn_on_request(tmp_path):
    with pytest.raises(FatalError), Mortal(tmp_path / "s.db", "drawn", 8) as store:
        fitted("dp-pevi", store)
    with ReleaseStore(tmp_path / "s.db") as store, pytest.raises(BurntError, match="after_crash='redraw'"):
        fitted("dp-pevi", store)
    with ReleaseStore(tmp_path / "s.db", after_crash="redraw") as store:
        result = fitted("dp-pevi", store)
        statuses = [r["status"] for r in store.describe()["releases"]]
    assert sorted(statuses) == ["redrawn"] + ["released"] * 7
    assert "drawn again" in result.certificate.notes[0]
    assert result.certificate.epsilon <= 3.0


def test_a_release_is_read_on_the_lattice_it_was_written_on(tmp_path):
    """A computer that rounds otherwise may choose another power of 2; reading with that one would be off by 2."""
    with ReleaseStore(tmp_path / "s.db") as store:
        first = fitted("dp-apvi", store)
        kept = privrl.privacy.noise.lattice.Lattice.from_bytes(store.distribution("visits/0"))
    half = privrl.privacy.noise.lattice.Lattice(
        kept.granularity / 2, kept.norm, kept.sensitivity, 2 * kept.noise, kept.kind
    )
    other = privrl.privacy.noise.lattice.Lattice(
        kept.granularity, kept.norm, 2 * kept.sensitivity, kept.noise, kept.kind
    )
    with ReleaseStore(tmp_path / "s.db") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(privrl.privacy.trust.curator, "choose_lattice", lambda **_: half)
        again = fitted("dp-apvi", store)  # both releases have this sensitivity here
        np.testing.assert_array_equal(again.policy.probabilities, first.policy.probabilities)
        assert again.certificate == first.certificate
        patch.setattr(privrl.privacy.trust.curator, "choose_lattice", lambda **_: other)
        with pytest.raises(ValueError, match="`visits/0` was reserved with less noise, or for another sensitivity"):
            fitted("dp-apvi", store)


def test_a_faulty_table_costs_nothing(tmp_path):
    """The pass over the people comes before the reservation."""
    chosen = get("dp-apvi")

    class Broken(privrl.data.Episodes):
        def chunks(self):
            raise privrl.data.TableError("row out of range")

        def bounded(self, num_states, num_actions):
            return self

    broken = Broken(**{name: getattr(DATA, name) for name in DATA.__dataclass_fields__})
    with ReleaseStore(tmp_path / "s.db") as store:
        with pytest.raises(privrl.data.TableError):
            privrl.fit(broken, chosen.learner(Problem.of(ENV)), chosen.privatizer(**BUDGET), store=store)
        assert store.describe()["releases"] == []


def test_groups_are_the_same_after_a_crash(tmp_path, monkeypatch):
    """VAPVI splits people by secret coins. A new split would let one person into both halves."""
    parts = []
    part = privrl.studies.offline.curated_records.Records.part
    monkeypatch.setattr(
        privrl.studies.offline.curated_records.Records,
        "part",
        lambda self, chosen: parts.append(chosen) or part(self, chosen),
    )
    learner = privrl.VAPVI(ENV.features, ENV.horizon, split=True)
    private = privrl.Central(**BUDGET)
    with pytest.raises(FatalError), Mortal(tmp_path / "s.db", "drawn", 2) as store:
        privrl.fit(DATA, learner, private, store=store)
    first = list(parts)
    parts.clear()
    with ReleaseStore(tmp_path / "s.db") as store:
        privrl.fit(DATA, learner, private, store=store)
    assert len(first) == 2
    for one, two in zip(first, parts, strict=True):
        np.testing.assert_array_equal(one, two)


def test_another_study_a_key_and_no_privacy_are_refused(tmp_path):
    with ReleaseStore(tmp_path / "s.db") as store:
        fitted("dp-apvi", store)
        with pytest.raises(StoreError, match="differs in"):
            fitted("dp-pevi", store)
        learner = get("dp-apvi").learner(Problem.of(ENV))
        with pytest.raises(ValueError, match="real people"):
            privrl.fit(DATA, learner, privrl.Central(**BUDGET), store=store, key=jax.random.key(0))
        with pytest.raises(ValueError, match="real people"):
            privrl.fit(DATA, learner, privrl.NonPrivate(), store=store)


KILLED = textwrap.dedent(
    """
    import sys
    from privrl.privacy.store.release_store import ReleaseStore
    from test_durable import fitted
    with ReleaseStore(sys.argv[1]) as store:
        print("ready", flush=True)
        fitted("dp-pevi", store)
    print("done", flush=True)
    """
)


@pytest.mark.slow
def test_fit_killed_at_random_times(tmp_path):
    """Six stores, six processes on each, killed at random moments unless they finish before."""
    rng = np.random.default_rng()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    kills = 0
    for study in range(6):
        path = tmp_path / f"{study}.db"
        seen: dict[str, np.ndarray] = {}
        for _ in range(6):
            arguments = [sys.executable, "-c", KILLED, str(path)]
            process = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment)
            assert process.stdout is not None
            assert process.stdout.readline().strip() == b"ready"
            try:
                process.wait(rng.uniform(0.2, 6.0))  # it has finished, or found its last release burnt
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
            process.stdout.close()
            with ReleaseStore(path) as store:
                shown = store.describe()
                for release in shown["releases"]:
                    value = store.value(release["name"])
                    if release["name"] in seen:
                        np.testing.assert_array_equal(value, seen[release["name"]])
                    if value is not None:
                        seen[release["name"]] = value
                for pool, spent in shown["spent"].items():
                    assert spent <= shown["limits"][pool] * (1 + 1e-12)
    assert kills > 0


def report(server, learner, index):
    client = privrl.Client(learner, privrl.Local(epsilon=2.0), key=jax.random.fold_in(jax.random.key(1), index))
    broadcast = server.broadcast()
    trajectory = ENV.rollout(broadcast.plan.policy, jax.random.fold_in(jax.random.key(2), index))
    return client.report(trajectory, broadcast)


def test_a_server_goes_on_where_the_last_one_stopped(tmp_path):
    learner = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=4, growth=1.5)
    local = privrl.Local(epsilon=2.0)

    def server(store):
        return privrl.Server(learner, local, num_users=20, store=store, key=jax.random.key(7))

    with ReleaseStore(tmp_path / "one.db") as store:
        whole = server(store)
        for i in range(20):
            whole.absorb(report(whole, learner, i))
    pending = None
    for i in range(20):
        with ReleaseStore(tmp_path / "two.db") as store:  # a new server for every message
            one = server(store)
            assert one.num_reports == i
            if pending is not None:
                assert not one.absorb(pending)  # kept by the last server, and answered as success
            pending = report(one, learner, i)
            assert one.absorb(pending)
    with ReleaseStore(tmp_path / "two.db") as store:
        last = server(store)
        assert last.num_reports == 20 and len(last._plans) == len(whole._plans)
        with pytest.raises(StoreError, match="differs in"):
            privrl.Server(learner, local, num_users=21, store=store)


def test_a_message_that_was_not_kept_is_not_counted(tmp_path):
    learner = privrl.UCBVI(ENV.rewards, ENV.horizon)
    local = privrl.Local(epsilon=2.0)
    with Mortal(tmp_path / "s.db", "contribute:written", 1) as store:
        server = privrl.Server(learner, local, num_users=20, store=store)
        message = report(server, learner, 0)
        with pytest.raises(FatalError):
            server.absorb(message)
        assert server.num_reports == 0
    with ReleaseStore(tmp_path / "s.db") as store:
        server = privrl.Server(learner, local, num_users=20, store=store)
        assert server.num_reports == 0
        server.absorb(message)  # the client, which got no answer, sends it again
        assert server.num_reports == 1
