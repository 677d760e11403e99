"""Restarts on a store that draw with another share's noise, or split people anew."""

import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, PRNGKeyArray

from privrl.audit.crashes import Attempt, crashed, in_two_groups, passed_by
from privrl.audit.known_bad.case import Audited, Case
from privrl.audit.known_bad.two_worlds import DELTA, EPSILON
from privrl.audit.people import Listening
from privrl.audit.recorded_fit import FitTranscript, Skipped
from privrl.audit.statistics import Asked
from privrl.audit.worlds import tiny_world
from privrl.contracts.learner import AbstractOfflineLearner, Ask
from privrl.contracts.release import Declared
from privrl.data.episodes import Episodes
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.composition import mu_of
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.noise.lattice import Lattice
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.privatizers import Central
from privrl.statistics.counts import VisitCounts
from privrl.studies.people import Records

_S, _A, _H = 3, 2, 3
_VISITS = VisitCounts(_S, _A, _H)
_CENTRAL = Central(epsilon=EPSILON, delta=DELTA)
_PEOPLE = 59


class _ThreeReleases(AbstractOfflineLearner):
    """Three releases about everybody, or two about halves of them."""

    groups: bool = eqx.field(static=True, default=False)
    horizon: int = eqx.field(static=True, default=_H)

    @property
    def space(self) -> tuple[int, int]:
        return _S, _A

    def bounds(self) -> dict[str, Any]:
        return {}

    def declare(self) -> tuple[Declared, ...]:
        if self.groups:
            return tuple(Declared(name, _VISITS, group=name) for name in ("first half", "second half"))
        return tuple(Declared(name, _VISITS) for name in ("first", "second", "third"))

    def fit(self, ask: Ask) -> TabularPolicy:
        del ask
        return TabularPolicy(jnp.full((_H, _S, _A), 1 / _A))


class _LatticeFirst(Curator):
    """As it was: the noise is chosen and kept before the budget is reserved, and only its sensitivity is compared."""

    def _reserved(self, label: str, lattice: Lattice, parameter: float) -> Lattice:
        assert self._store is not None
        kept = Lattice.from_bytes(self._store.fact(f"lattice of {label}", lattice.to_bytes))
        assert math.isclose(kept.sensitivity, lattice.sensitivity, rel_tol=1e-9)
        return kept


class _ByPosition(Records):
    """As it was: a person's group follows the position of their rows."""

    def coins(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        return np.random.default_rng(list(key)).random(self.num_units)


def _table(ids: range, seed: PRNGKeyArray) -> Episodes:
    """People by id; whoever is in two tables has the same record in both."""
    env = tiny_world(_H, _S, _A)
    everybody = env.sample(env.behaviour_policy(), _PEOPLE + 1, seed)
    some = jax.tree.map(lambda x: np.asarray(x)[np.array(ids)], everybody)
    return Episodes.of(some, num_states=_S, num_actions=_A, units=[str(i) for i in ids])


def _another_share(key: PRNGKeyArray, trials: int, *, curator: type[Curator]) -> Audited:
    """Killed while the third release is given up for the second; restarted by a program that gives up nothing."""
    del trials
    learner = _ThreeReleases()
    ledger = _CENTRAL.calibrate(learner.declare())
    people = Records(_table(range(_PEOPLE), key))
    steps = {name: Asked(name, _VISITS) for name in ("first", "second", "third")}
    skipping = (steps["first"], Skipped("third", ("second",)), steps["second"])
    first = Attempt(FitTranscript(learner, _CENTRAL, ledger.events(), skipping), people, curator)
    second = dataclasses.replace(first, fit=dataclasses.replace(first.fit, steps=tuple(steps.values())))
    certified = mu_of(ledger.events())
    assert certified is not None
    passed = passed_by(first)
    points = [(point, n + 1) for point in dict.fromkeys(passed) for n in range(passed.count(point))]
    used = {point: crashed(first, second, *point, "redraw").get("gaussian", 0.0) for point in points}
    worst = max(used, key=lambda point: used[point])
    audited = gdp_epsilon(certified * math.sqrt(used[worst]), DELTA)
    caught = used[worst] > 1 + 1e-9
    detail = f"killed at {worst[0]} ({worst[1]}): the laws in the store, of {len(points)} crashes the worst"
    return Audited(EPSILON, audited if caught else min(audited, EPSILON), "epsilon", caught, detail)


def _inserted_on_top(key: PRNGKeyArray, trials: int, *, people: type[Records]) -> Audited:
    """Killed after the release of one half, one person inserted on top of the table, started again."""
    del trials
    learner = _ThreeReleases(groups=True)
    ledger = _CENTRAL.calibrate(learner.declare())
    steps = tuple(Asked(d.name, _VISITS) for d in learner.declare())
    fit = FitTranscript(learner, _CENTRAL, ledger.events(), steps)
    groups: list[list[set[str]]] = [[], []]
    ranges = (range(1, _PEOPLE + 1), range(_PEOPLE + 1))
    before, after = (
        Attempt(fit, Listening(people(_table(ids, key)), [str(i) for i in ids], members))
        for ids, members in zip(ranges, groups, strict=True)
    )
    crashed(before, after, "persist:committed", 1, "redraw")
    moved = in_two_groups(groups)
    touched = [event.parameter for event in ledger.events()]
    audited = gdp_epsilon(math.hypot(*touched) if moved else max(touched), DELTA)
    detail = f"{moved} of {_PEOPLE} people are in both groups"
    return Audited(EPSILON, audited if moved else min(audited, EPSILON), "epsilon", moved > 0, detail)


CASES = (
    Case(
        name="noise-of-another-share",
        paper="practice",
        flaw="a release's noise is kept before its budget is reserved, and used again for another share",
        proof="a program that trades shares chooses little noise, dies, and one that does not trade pays less for it",
        attack=functools.partial(_another_share, curator=_LatticeFirst),
        trials=1,
        corrected=functools.partial(_another_share, curator=Curator),
    ),
    Case(
        name="groups-by-row-position",
        paper="practice",
        flaw="people are split into groups by the position of their rows, and the split is made again after a crash",
        proof="a row inserted on top shifts everybody: many are in both groups and pay μ² twice, not once",
        attack=functools.partial(_inserted_on_top, people=_ByPosition),
        trials=1,
        corrected=functools.partial(_inserted_on_top, people=Records),
    ),
)
