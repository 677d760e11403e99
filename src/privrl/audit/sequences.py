"""The number and order of releases: do they say anything that no release says?

A learner is fitted in a world and its neighbour, and is answered in the second with the releases of the first: it has
then seen the same in both. What is asked, how often, in which order, with which statistics and with how much noise must
be the same to the last bit, or the sequence itself tells the worlds apart with certainty. Through the interface a
learner sees releases only, so it cannot differ; what could are the curator, the ledger and the lattice.
"""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool

from privrl.audit.findings import Finding
from privrl.audit.recorded_run import RunTranscript, record_run
from privrl.contracts.learner import AbstractOfflineLearner, AbstractOnlineLearner
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.data.dataset import AbstractDataset
from privrl.data.episodes import Episodes
from privrl.mdp.types import Trajectory
from privrl.privacy.noise.sources import System
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, PairingError
from privrl.studies.people import Records
from privrl.studies.study import Study

ORDER_OF_RELEASES = "order-of-releases"
_MOST = 40  # releases of one fit
Table = Callable[[Trajectory], Episodes]


class EnoughError(Exception):
    """So many releases were compared; what comes later is of the same kinds."""


class ScriptedCurator(Curator):
    """The shipped curator with exact noise; its answers are written down, or replaced by those of another world."""

    def __init__(self, *arguments: Any, script: list[Release] | None = None) -> None:
        super().__init__(*arguments)
        self._script = None if script is None else list(script)
        self.answers: list[Release] = []
        self.log: list[tuple[str, str, tuple[float, ...], bytes]] = []

    def __call__(self, name: str, statistic: AbstractStatistic | None = None) -> Release:
        if len(self.answers) == _MOST:
            raise EnoughError
        release = super().__call__(name, statistic)
        chosen = self._ledger.declared(name).statistic if statistic is None else statistic
        leaves = jax.tree.leaves(release.noise)
        law = tuple(float(x) for leaf in leaves for x in np.ravel(np.asarray(leaf)))
        self.log.append(("release", name, law, _fingerprint(chosen)))
        self.answers.append(release)
        if self._script is None:
            return release
        return self._script[len(self.answers) - 1] if len(self.answers) <= len(self._script) else release

    def skip(self, name: str, to: tuple[str, ...]) -> None:
        self.log.append(("skip", name, (), ",".join(to).encode()))
        super().skip(name, to)


def sequence(
    data: AbstractDataset,
    learner: AbstractOfflineLearner,
    privatizer: AbstractPrivatizer,
    script: list[Release] | None = None,
) -> ScriptedCurator:
    """One fit in one world."""
    study = Study.offline(learner, privatizer, "unit")
    people = Records(data.bounded(*learner.space))
    mechanism = privatizer.mechanism_of_rounds
    curator = ScriptedCurator(people, study.ledger, System(), mechanism, script=script)
    with contextlib.suppress(EnoughError):
        learner.fit(curator)
    return curator


def of_fit(
    people: Trajectory,
    table: Table,
    records: Trajectory,
    learner: AbstractOfflineLearner,
    privatizer: AbstractPrivatizer,
    rng: np.random.Generator,
) -> Finding:
    """A world, and its neighbours: one person replaced, and one removed where that is the relation."""
    found: list[str] = []
    tried = 0
    cases: list[tuple[str, AbstractPrivatizer]] = [("replaced", privatizer)]
    if isinstance(privatizer, Central):
        cases.append(("removed", replace(privatizer, adjacency="add-remove")))
    for what, relation in cases:
        first = sequence(table(people), learner, relation)
        other = neighbour(people, records, what, rng)
        second = sequence(table(other), learner, relation, first.answers)
        tried += len(first.log)
        found += compared(first.log, second.log, what)
    return Finding(ORDER_OF_RELEASES, tried, tuple(found))


def compared(first: list[Any], second: list[Any], what: str) -> list[str]:
    """Where two sequences of releases differ, the first place only."""
    if len(first) != len(second):
        return [f"with one person {what} there are {len(second)} releases and skips instead of {len(first)}"]
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            part = next(n for n, a, b in zip(("kind", "name", "law", "statistic"), one, other, strict=True) if a != b)
            return [f"with one person {what}, release {number} (`{one[1]}`) has another {part}"]
    return []


def neighbour(people: Trajectory, records: Trajectory, what: str, rng: np.random.Generator) -> Trajectory:
    """The same people but for the first, who is gone or has another record, one of `records` that a table can hold."""
    if what == "removed":
        return jax.tree.map(lambda x: np.asarray(x)[1:], people)
    top = [int(np.max(np.asarray(x))) for x in (people.states, people.actions)]
    other = int(rng.choice(np.flatnonzero(_well_formed(records, *top))))
    return jax.tree.map(lambda x, y: np.concatenate([np.asarray(y)[other][None], np.asarray(x)[1:]]), people, records)


def of_run(run: RunTranscript, env: Any, learner: AbstractOnlineLearner, privatizer: AbstractPrivatizer) -> Finding:
    """Other people in the same places; and whether removing one of them is refused, where blocks fill by number."""
    again = record_run(env, learner, privatizer, jax.random.key(1))
    one, other = ([question[:3] for question in transcript.questions] for transcript in (run, again))
    found = [] if one == other else ["with other people, other questions are asked"]
    found += [] if run.ends == again.ends else ["with other people, blocks end elsewhere"]
    if isinstance(privatizer, Central):
        try:
            Study.online(learner, replace(privatizer, adjacency="add-remove"), run.ends[-1])
            found.append("one person less is another number of releases, and `add-remove` is not refused")
        except PairingError:
            pass
    return Finding(ORDER_OF_RELEASES, 2 + len(one), tuple(found))


def _well_formed(records: Trajectory, last_state: int, last_action: int) -> Bool[np.ndarray, " N"]:
    s, a, after, r = (np.asarray(x) for x in (records.states, records.actions, records.next_states, records.rewards))
    inside = (s >= 0) & (s <= last_state) & (a >= 0) & (a <= last_action) & (after >= 0) & (after <= last_state)
    length = np.asarray(records.length)
    return (inside & (r >= 0) & (r <= 1)).all(axis=1) & (length > 0) & (length <= s.shape[1])


def _fingerprint(statistic: AbstractStatistic | None) -> bytes:
    """All arrays and settings of a statistic, as a digest."""
    leaves, structure = jax.tree.flatten(statistic)
    content = [str(structure).encode(), *(np.asarray(leaf).tobytes() for leaf in leaves)]
    return hashlib.blake2b(b"|".join(content), digest_size=16).digest()
