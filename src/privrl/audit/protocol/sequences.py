"""The number and order of releases: do they say anything that no release says?

A learner is fitted in a world and its neighbour, and is answered in the second with the releases of the first: it has
then seen the same in both. What is asked, how often, in which order, with which statistics and with how much noise must
be the same to the last bit, or the sequence itself tells the worlds apart with certainty. Through the interface a
learner sees releases only, so it cannot differ; what could are the curator, the ledger and the lattice.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool

from privrl.audit.findings import Finding
from privrl.audit.surface.neighbouring_records import bytes_of, joined, picked
from privrl.audit.surface.queries import Asked
from privrl.audit.surface.recorded_fit import FitTranscript, Given, Skipped, record_fit
from privrl.audit.surface.recorded_run import RunTranscript, record_run
from privrl.contracts.learner import AbstractOfflineLearner
from privrl.contracts.release import Release
from privrl.data.dataset import AbstractDataset
from privrl.data.episodes import Episodes
from privrl.mdp.types import Trajectory
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, PairingError
from privrl.studies.study import Study

ORDER_OF_RELEASES = "order-of-releases"
_MOST = 40  # releases of one fit
Entry = tuple[str, str, bytes, bytes, Release | None]  # kind, name, distribution and statistic, and what was released


def sequence(
    data: AbstractDataset, learner: AbstractOfflineLearner, privatizer: AbstractPrivatizer, script: Sequence[Entry] = ()
) -> list[Entry]:
    """What one fit releases and skips in one world, with exact noise; its learner sees the releases of a `script`."""
    answers = [release for *_, release in script if release is not None]
    fit = record_fit(data, learner, privatizer, script=answers, most=_MOST)
    return [_entry(step) for step in fit.steps]


def _entry(step: Asked | Given | Skipped) -> Entry:
    if isinstance(step, Skipped):
        return "skip", step.name, b"", ",".join(step.to).encode(), None
    if isinstance(step, Given):
        return "vector", step.name, bytes_of(step.scale), bytes_of((step.shape, step.distance, step.bound)), None
    assert step.release is not None
    statistic = str(jax.tree.structure(step.statistic)).encode() + bytes_of(step.statistic)
    return "release", step.name, bytes_of(step.release.noise), statistic, step.release


def of_fit(
    fit: FitTranscript,
    people: Trajectory,
    table: Callable[[Trajectory], Episodes],
    records: Trajectory,
    rng: np.random.Generator,
) -> Finding:
    """A world, and its neighbours: one person replaced, and one removed where that is the relation."""
    learner, privatizer = fit.learner, fit.privatizer
    assert isinstance(learner, AbstractOfflineLearner)
    found: list[str] = []
    tried = 0
    cases: list[tuple[str, AbstractPrivatizer, Trajectory]] = [("replaced", privatizer, replaced(people, records, rng))]
    if isinstance(privatizer, Central):
        cases.append(("removed", replace(privatizer, adjacency="add-remove"), picked(people, slice(1, None))))
    for what, relation, other in cases:
        first = sequence(table(people), learner, relation)
        tried += len(first)
        found += compared(first, sequence(table(other), learner, relation, first), what)
    return Finding(ORDER_OF_RELEASES, tried, tuple(found))


def compared(first: Sequence[Entry], second: Sequence[Entry], what: str) -> list[str]:
    """Where two sequences of releases differ in kind, name, distribution or statistic, the first place only."""
    if len(first) != len(second):
        return [f"with one person {what} there are {len(second)} releases and skips instead of {len(first)}"]
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if one[:4] != other[:4]:
            part = next(
                n for n, a, b in zip(("kind", "name", "distribution", "statistic"), one, other, strict=False) if a != b
            )
            return [f"with one person {what}, release {number} (`{one[1]}`) has another {part}"]
    return []


def replaced(people: Trajectory, records: Trajectory, rng: np.random.Generator) -> Trajectory:
    """The same people but for the first, who has another record, one of `records` that a table can hold."""
    other = int(rng.choice(np.flatnonzero(_well_formed(records, people))))
    return joined(picked(records, slice(other, other + 1)), picked(people, slice(1, None)))


def of_run(run: RunTranscript, env: Any) -> Finding:
    """Other people in the same places; and whether removing one of them is refused, where blocks fill by number."""
    again = record_run(env, run.learner, run.privatizer, jax.random.key(1))
    one, other = ([query[:3] for query in transcript.queries] for transcript in (run, again))
    found = [] if one == other else ["with other people, other queries are asked"]
    found += [] if run.ends == again.ends else ["with other people, blocks end elsewhere"]
    if isinstance(run.privatizer, Central):
        try:
            Study.online(run.learner, replace(run.privatizer, adjacency="add-remove"), run.ends[-1])
            found.append("one person less is another number of releases, and `add-remove` is not refused")
        except PairingError:
            pass
    return Finding(ORDER_OF_RELEASES, 2 + len(one), tuple(found))


def _well_formed(records: Trajectory, people: Trajectory) -> Bool[np.ndarray, " N"]:
    """Those whose numbers of states and actions occur among people; measurements are taken as they are."""
    r, length = np.asarray(records.rewards), np.asarray(records.length)
    inside = (r >= 0) & (r <= 1)
    known = ((records.states, people.states), (records.actions, people.actions), (records.next_states, people.states))
    for own, others in known:
        if np.asarray(others).dtype.kind in "iu":
            inside &= (np.asarray(own) >= 0) & (np.asarray(own) <= int(np.max(np.asarray(others))))
    return inside.all(axis=1) & (length > 0) & (length <= r.shape[1])
