"""Studies without a known end: schedules, who can have one, and what the certificate says."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import privrl
from privrl.contracts.learner import AbstractOnlineLearner, Plan
from privrl.contracts.release import Declared
from privrl.learners.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
from privrl.learners.linear.lsvi_ucb_unweighted import LuyoLSVIUCB
from privrl.learners.linear.ucrl_vtr import UCRLVTR
from privrl.mdp.types import TabularPolicy
from privrl.privacy.continual.mechanisms import every
from privrl.privacy.trust.privatizers import PairingError
from privrl.statistics.next_states import StartCounts
from privrl.studies.open_ended import OpenEnded, smallest_block, until

ENV = privrl.envs.RiverSwim(states=3, horizon=4, kind="osband")
LSVI = privrl.LSVIUCB(ENV.features, ENV.horizon, rewards=ENV.rewards)
UCBVI = privrl.UCBVI(ENV.rewards, ENV.horizon)
CENTRAL = privrl.Central(epsilon=1.0, delta=1e-5)
KEY = jax.random.key(0)


@pytest.mark.parametrize("learner", [LSVI, UCBVI, UCRLVTR(ENV.rewards, ENV.horizon)], ids=lambda x: type(x).__name__)
def test_epochs_double_in_releases_and_blocks_are_the_learners(learner: AbstractOnlineLearner) -> None:
    ends, declared = OpenEnded(first=32).declared(learner)
    np.testing.assert_array_equal(ends, learner.blocks(2**24))
    (epochs,) = {d.epochs for d in declared}
    assert epochs[:2] == (32, 64) and sum(epochs) == len(ends) == declared[0].times
    for people in (1_000, 70_000):  # a known number of people has the same blocks
        np.testing.assert_array_equal(learner.blocks(people)[:-2], ends[: len(learner.blocks(people)) - 2])


def test_epochs_of_so_many_people_end_with_a_release() -> None:
    ends, (declared,) = OpenEnded(epoch=1_000, forget=0.5).declared(UCBVI)
    assert (np.diff(ends, prepend=0) >= 20).all() and len(ends) <= 1_024 and ends[-1] % 1_000 == 0
    assert set(range(1_000, 60_001, 1_000)) <= set(ends.tolist())
    lasts = np.cumsum(declared.epochs) - 1
    np.testing.assert_array_equal(ends[lasts], 1_000 * np.arange(1, len(lasts) + 1))
    assert declared.forget == 0.5 and declared.epochs[-1] == 1


def test_the_ceiling_costs_releases_by_its_logarithm() -> None:
    few, many = (len(OpenEnded(ceiling=2**power).declared(LSVI)[0]) for power in (20, 40))
    assert many - few < 110


def test_a_simulation_ends_where_it_is_cut() -> None:
    ends, _ = OpenEnded().declared(UCBVI)
    assert smallest_block(UCBVI) == 20 and smallest_block(LSVI) == 1
    for people in (5, 20, 1_000, 1_001):
        cut = until(ends, people, 20)
        assert cut[-1] == people and (np.diff(cut, prepend=0) >= min(20, people)).all()
        assert set(cut[:-1].tolist()) <= set(ends.tolist())


@pytest.mark.parametrize(
    ("learner", "spec", "words"),
    [
        (LuyoLSVIUCB(ENV.features, 4, rewards=ENV.rewards), OpenEnded(), "depend on how many people there will be"),
        (LSVIUCBPlusPlus(ENV.features, 4, rewards=ENV.rewards), OpenEnded(), "plans again after every 1 people"),
        (privrl.UCBVI(ENV.rewards, 4, first_block=500), OpenEnded(epoch=100), "has at least 500"),
        (LSVI, OpenEnded(epoch=500, forget=0.5), "remembers what earlier sums were"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_who_is_refused(learner: AbstractOnlineLearner, spec: OpenEnded, words: str) -> None:
    with pytest.raises((PairingError, ValueError), match=words):
        spec.declared(learner)


@pytest.mark.parametrize(
    "given", [{"first": 0}, {"epoch": 0}, {"ceiling": 0}, {"forget": 0.5}, {"epoch": 10, "forget": 1.5}], ids=str
)
def test_refused_settings(given: dict) -> None:
    with pytest.raises(ValueError, match="`first`|`forget`"):
        OpenEnded(**given)


def test_settings_come_back() -> None:
    spec = OpenEnded(epoch=500, forget=0.25)
    assert OpenEnded.from_json(spec.to_json()) == spec
    assert "500 people" in spec.note(10) and "0.25" in spec.note(10) and "256 releases" in OpenEnded().note(10)
    assert "counted once in all epochs" in spec.note(10) and "spread the 3 counted" in spec.note(10, 3)


def test_declared_epochs_are_all_releases() -> None:
    with pytest.raises(ValueError, match="`epochs`"):
        Declared("starts", StartCounts(3), access="running", times=3, epochs=(1, 1))
    with pytest.raises(ValueError, match="`epochs`"):
        Declared("starts", StartCounts(3), access="blocks", times=2, epochs=(1, 1))


@pytest.mark.parametrize("learner", [UCBVI, pytest.param(LSVI, marks=pytest.mark.slow)], ids=lambda x: type(x).__name__)
def test_without_noise_it_is_the_study_of_a_known_number_of_people(learner: AbstractOnlineLearner) -> None:
    """The same blocks, plans and regret, bit by bit, where the last person ends a block."""
    ends, _ = OpenEnded().declared(learner)
    how = {"episodes": int(ends[12]), "key": KEY, "flow": False}
    known, unknown = (privrl.run(ENV, learner, privrl.NonPrivate(), open_ended=flag, **how) for flag in (False, True))
    np.testing.assert_array_equal(known.block_ends, unknown.block_ends)
    np.testing.assert_array_equal(known.block_regret, unknown.block_regret)


def test_a_certificate_follows_from_its_settings_and_says_that_nobody_knows_the_end() -> None:
    spec = OpenEnded(epoch=40, forget=0.5, ceiling=400)
    found = privrl.run(ENV, UCBVI, CENTRAL, episodes=130, open_ended=spec, key=KEY, flow=False)
    certificate = found.certificate
    assert certificate.study["users"] == spec.to_json() and certificate.epsilon == pytest.approx(1.0, rel=1e-3)
    assert any("open-ended" in note and "multiplied by 0.5" in note for note in certificate.notes)
    assert set(found.block_ends.tolist()) >= {40, 80} and found.block_ends[-1] == 130
    checks = {check.name: check for check in privrl.certify(certificate, found.policy).checks}
    assert checks["settings"].ok and checks["releases"].ok and checks["cost"].ok, checks
    changed = OpenEnded(epoch=40, forget=0.5, ceiling=4_000).to_json()
    forged = dataclasses.replace(certificate, study={**certificate.study, "users": changed})
    assert not {c.name: c.ok for c in privrl.certify(forged, found.policy).checks}["settings"]


def test_more_people_than_places_are_refused() -> None:
    with pytest.raises(ValueError, match="no more than 400 people"):
        privrl.run(ENV, UCBVI, CENTRAL, episodes=401, open_ended=OpenEnded(ceiling=400), key=KEY)


@pytest.mark.slow
def test_a_shorter_last_block_is_never_smaller_than_promised() -> None:
    """The quick tests see where a simulation is cut, above, and the smallest batch in `test_shuffled.py`."""
    learner = privrl.UCBVI(ENV.rewards, 4, first_block=200)
    found = privrl.run(ENV, learner, privrl.Shuffled(epsilon=1.0, delta=1e-3), episodes=700, open_ended=True, key=KEY)
    assert np.diff(found.block_ends, prepend=0).min() >= 200 and found.certificate.notion == "shuffle"


@pytest.mark.parametrize("privatizer", [privrl.Local(epsilon=1.0), privrl.Local(epsilon=1.0, delta=1e-5)], ids=repr)
def test_only_a_curators_sums_forget(privatizer: privrl.Local) -> None:
    with pytest.raises(PairingError, match="only a curator's sums can forget"):
        privrl.run(ENV, UCBVI, privatizer, episodes=50, open_ended=OpenEnded(epoch=40, forget=0.5), key=KEY)


class Still(AbstractOnlineLearner):
    """Plays uniformly at random and learns nothing, in blocks of 25 people."""

    horizon: int = 4

    def bounds(self) -> dict[str, Any]:
        return {}

    def schedule(self, num_users: int) -> np.ndarray:
        return every(num_users, 25)

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        return (Declared("starts", StartCounts(3), access="running", times=num_blocks),)

    def plan(self, memory: None, released: Any, ask: Any, num_seen: Any) -> tuple[None, Plan]:
        return None, Plan(TabularPolicy.uniform(4, 3, 2))


@pytest.mark.parametrize("flow", [True, False])
def test_a_simulation_meets_the_world_of_the_moment(flow: bool) -> None:
    """Regret of every block is that of its first person's world."""
    river = privrl.envs.make("drifting-river", states=3, horizon=4, period=300)
    found = privrl.run(river, Still(), privrl.NonPrivate(), episodes=150, key=KEY, flow=flow)
    each = [float(river.at(begin).regret(river.uniform_policy())) for begin in range(0, 150, 25)]
    np.testing.assert_allclose(found.block_regret[0], each, atol=1e-12)
    assert np.ptp(each) > 0.01
