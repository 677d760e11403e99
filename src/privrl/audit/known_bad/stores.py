"""Restarts on a store that draw with the noise of another share, or split people into groups anew."""

import dataclasses
import math

import jax
import numpy as np
from jaxtyping import Float64, PRNGKeyArray

from privrl.audit.known_bad.case import DELTA, EPSILON, Audited, case
from privrl.audit.known_bad.protocols import VISITS, ThreeReleases
from privrl.audit.protocol.crashes import Attempt, count_in_two_groups, list_passed_points, spend_after_crash
from privrl.audit.surface.queries import Query
from privrl.audit.surface.recorded_fit import FitTranscript, Skipped
from privrl.audit.surface.recorded_people import GroupRecorder
from privrl.audit.worlds import tiny_world
from privrl.data.episodes import Episodes
from privrl.privacy.accounting.composition import mu_of
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.noise.lattice import Lattice
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.privatizers import Central
from privrl.studies.offline.curated_records import Records

_CENTRAL = Central(epsilon=EPSILON, delta=DELTA)
_PEOPLE = 59


class _LatticeFirst(Curator):
    """The curator of an earlier version: it stores the noise before it reserves the budget, and compares only
    sensitivities.
    """

    def _reserved(self, label: str, lattice: Lattice, parameter: float) -> Lattice:
        assert self._store is not None
        kept = Lattice.from_bytes(self._store.fact(f"lattice of {label}", lattice.to_bytes))
        assert math.isclose(kept.sensitivity, lattice.sensitivity, rel_tol=1e-9)
        return kept


class _ByPosition(Records):
    """People of an earlier version: a person's group follows from the position of their rows."""

    def unit_draws(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        return np.random.default_rng(list(key)).random(self.num_units)


def _table(ids: range, seed: PRNGKeyArray) -> Episodes:
    """Make a table of people by id; a person in two tables has the same record in both."""
    env = tiny_world()
    all_people = env.sample(env.behaviour_policy(), _PEOPLE + 1, seed)
    some = jax.tree.map(lambda x: np.asarray(x)[np.array(ids)], all_people)
    return Episodes.from_trajectories(
        some, num_states=env.num_states, num_actions=env.num_actions, units=[str(i) for i in ids]
    )


@case(
    paper="practice",
    trials=1,
    flaw="a release's noise is kept before its budget is reserved, and used again for another share",
    proof="a program that trades shares chooses little noise and is killed; one that does not trade pays less for it",
)
def noise_of_another_share(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Killed while the third release is given up for the second; restarted by a program that gives up nothing."""
    del trials
    learner = ThreeReleases()
    ledger = _CENTRAL.calibrate(learner.declare())
    people = Records(_table(range(_PEOPLE), key))
    steps = {d.name: Query(d.name, VISITS) for d in learner.declare()}
    skipping = (steps["first"], Skipped("third", ("second",)), steps["second"])
    fit = FitTranscript(learner, _CENTRAL, ledger.events(), skipping)
    first = Attempt(fit, people, _LatticeFirst if flawed else Curator)
    second = dataclasses.replace(first, fit=dataclasses.replace(fit, steps=tuple(steps.values())))
    certified = mu_of(ledger.events())
    assert certified is not None
    passed = list_passed_points(first)
    points = [(point, n + 1) for point in dict.fromkeys(passed) for n in range(passed.count(point))]
    used = {point: spend_after_crash(first, second, *point, "redraw").get("gaussian", 0.0) for point in points}
    worst = max(used, key=lambda point: used[point])
    audited = gdp_epsilon(certified * math.sqrt(used[worst]), DELTA)
    caught = used[worst] > 1 + 1e-9
    detail = f"killed at {worst[0]} ({worst[1]}): the worst of {len(points)} crashes, by the distributions in the store"
    return Audited(EPSILON, audited if caught else min(audited, EPSILON), "epsilon", caught, detail)


@case(
    paper="practice",
    trials=1,
    flaw="people are split into groups by the position of their rows, and the split is made again after a crash",
    proof="a row inserted at the top shifts all people: many are in both groups and pay μ² twice, not once",
)
def groups_by_row_position(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Killed after the release of one half, one person inserted at the top of the table, started again."""
    del trials
    learner = ThreeReleases(groups=True)
    ledger = _CENTRAL.calibrate(learner.declare())
    steps = tuple(Query(d.name, VISITS) for d in learner.declare())
    fit = FitTranscript(learner, _CENTRAL, ledger.events(), steps)
    groups: list[list[set[str]]] = [[], []]
    people, ranges = _ByPosition if flawed else Records, (range(1, _PEOPLE + 1), range(_PEOPLE + 1))
    before, after = (
        Attempt(fit, GroupRecorder(people(_table(ids, key)), [str(i) for i in ids], members))
        for ids, members in zip(ranges, groups, strict=True)
    )
    spend_after_crash(before, after, "persist:committed", 1, "redraw")
    moved = count_in_two_groups(groups)
    touched = [event.parameter for event in ledger.events()]
    audited = gdp_epsilon(math.hypot(*touched) if moved else max(touched), DELTA)
    detail = f"{moved} of {_PEOPLE} people are in both groups"
    return Audited(EPSILON, audited if moved else min(audited, EPSILON), "epsilon", moved > 0, detail)


CASES = (noise_of_another_share, groups_by_row_position)
