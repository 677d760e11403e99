"""The number and order of releases: do they depend on people in a way that no release accounts for?

A learner is fitted in a world and in its neighbour, and in the second it gets the releases of the first: it has
then seen the same in both. The queries, their number and order, their statistics and their noise must be the same
to the last bit, otherwise the sequence itself tells the worlds apart with certainty. Through the interface a
learner sees releases only, so it cannot differ. The curator, the ledger and the lattice could.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import numpy as np
from jaxtyping import Bool

from privrl.audit.findings import Finding
from privrl.audit.surface.neighbouring_records import join_records, leaf_bytes, pick_records
from privrl.audit.surface.queries import Query
from privrl.audit.surface.recorded_fit import FitTranscript, Skipped, ValueQuery, record_fit
from privrl.audit.surface.recorded_run import RunTranscript, record_run
from privrl.contracts.learner import AbstractOfflineLearner
from privrl.contracts.release import Release
from privrl.data.dataset import AbstractDataset
from privrl.data.episodes import Episodes
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.mdp.types import Trajectory
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, PairingError
from privrl.studies.study import Study

ORDER_OF_RELEASES = "order-of-releases"
_MOST = 40  # releases of one fit
Entry = tuple[str, str, bytes, bytes, Release | None]  # kind, name, distribution and statistic, and what was released


def record_sequence(
    data: AbstractDataset, learner: AbstractOfflineLearner, privatizer: AbstractPrivatizer, script: Sequence[Entry] = ()
) -> list[Entry]:
    """Record what one fit releases and skips in one world, with exact noise; the learner sees the releases of a
    `script`.
    """
    answers = [release for *_, release in script if release is not None]
    fit = record_fit(data, learner, privatizer, script=answers, most=_MOST)
    return [_entry(step) for step in fit.steps]


def _entry(step: Query | ValueQuery | Skipped) -> Entry:
    if isinstance(step, Skipped):
        return "skip", step.name, b"", ",".join(step.to).encode(), None
    if isinstance(step, ValueQuery):
        return "vector", step.name, leaf_bytes(step.scale), leaf_bytes((step.shape, step.distance, step.bound)), None
    assert step.release is not None
    statistic = str(jax.tree.structure(step.statistic)).encode() + leaf_bytes(step.statistic)
    return "release", step.name, leaf_bytes(step.release.noise), statistic, step.release


def attack_fit(
    fit: FitTranscript,
    people: Trajectory,
    table: Callable[[Trajectory], Episodes],
    records: Trajectory,
    rng: np.random.Generator,
) -> Finding:
    """Compare a world with its neighbours: one person replaced, and one removed if the relation is add-remove."""
    learner, privatizer = fit.learner, fit.privatizer
    assert isinstance(learner, AbstractOfflineLearner)
    found: list[str] = []
    tried = 0
    cases: list[tuple[str, AbstractPrivatizer, Trajectory]] = [
        ("replaced", privatizer, replace_first(people, records, rng))
    ]
    if isinstance(privatizer, Central):
        cases.append(("removed", replace(privatizer, adjacency="add-remove"), pick_records(people, slice(1, None))))
    for what, relation, other in cases:
        first = record_sequence(table(people), learner, relation)
        tried += len(first)
        found += compare_sequences(first, record_sequence(table(other), learner, relation, first), what)
    return Finding(ORDER_OF_RELEASES, tried, tuple(found))


def compare_sequences(first: Sequence[Entry], second: Sequence[Entry], what: str) -> list[str]:
    """Return the first place where two sequences of releases differ in kind, name, distribution or statistic."""
    if len(first) != len(second):
        return [f"with one person {what} there are {len(second)} releases and skips instead of {len(first)}"]
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if one[:4] != other[:4]:
            part = next(
                n for n, a, b in zip(("kind", "name", "distribution", "statistic"), one, other, strict=False) if a != b
            )
            return [f"with one person {what}, release {number} (`{one[1]}`) has another {part}"]
    return []


def replace_first(people: Trajectory, records: Trajectory, rng: np.random.Generator) -> Trajectory:
    """Replace the first person's record by one of `records` that a table can hold."""
    other = int(rng.choice(np.flatnonzero(_well_formed(records, people))))
    return join_records(pick_records(records, slice(other, other + 1)), pick_records(people, slice(1, None)))


def attack_run(run: RunTranscript, env: Env | LQEnv) -> Finding:
    """Compare with other people in the same places, and check that removing a person is refused if blocks fill by
    number.
    """
    again = record_run(env, run.learner, run.privatizer, jax.random.key(1))
    one, other = ([query[:3] for query in transcript.queries] for transcript in (run, again))
    found = [] if one == other else ["with other people, other queries are made"]
    found += [] if run.ends == again.ends else ["with other people, blocks end at other places"]
    if isinstance(run.privatizer, Central):
        try:
            Study.online(run.learner, replace(run.privatizer, adjacency="add-remove"), run.ends[-1])
            found.append("without one person the number of releases changes, but `add-remove` is not refused")
        except PairingError:
            pass
    return Finding(ORDER_OF_RELEASES, 2 + len(one), tuple(found))


def _well_formed(records: Trajectory, people: Trajectory) -> Bool[np.ndarray, " N"]:
    """Mark the records whose states and actions occur among people; all measurements are accepted."""
    r, length = np.asarray(records.rewards), np.asarray(records.length)
    inside = (r >= 0) & (r <= 1)
    known = ((records.states, people.states), (records.actions, people.actions), (records.next_states, people.states))
    for own, others in known:
        if np.asarray(others).dtype.kind in "iu":
            inside &= (np.asarray(own) >= 0) & (np.asarray(own) <= int(np.max(np.asarray(others))))
    return inside.all(axis=1) & (length > 0) & (length <= r.shape[1])
