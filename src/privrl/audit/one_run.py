"""Audit a fit of your own table in a single run, with canaries.

Each of m invented people is put into the table or left out by a fair random draw of their own. After one fit, the
draws are guessed from everything that was released. The number of right guesses bounds epsilon from below
(`one_run_epsilon`, which has the proof).

**The audited fit is a test.** The canaries are extreme on purpose and spoil what is learnt, so do not publish its
policy. The fit reads real people's records: if any of its output is published, it costs them a budget like any
other fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import final

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from privrl.audit.bounds import one_run_epsilon
from privrl.audit.findings import to_json_object
from privrl.audit.surface.queries import Query
from privrl.audit.surface.recorded_fit import FitTranscript, record_fit
from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner
from privrl.data.dataset import AbstractDataset, Summary
from privrl.data.rows.encoding import encode_block
from privrl.data.rows.transitions import Block
from privrl.data.schema.table_schema import Bounds
from privrl.mdp.types import Trajectory
from privrl.privacy.accounting.composition import epsilon_of
from privrl.privacy.noise.arithmetic import Floating
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.offline.curated_records import Records as _Records

_PRIOR = 0.25  # the variance of a fair coin


@dataclass(frozen=True)
class OneRunReport:
    """What one fit with canaries revealed about their random draws; `epsilon_lower` holds with probability
    `confidence`.

    A bound below the claim proves nothing: one run is a weak test of a small epsilon, and a strong test of missing
    noise.
    """

    learner: str
    epsilon_claimed: float
    epsilon_lower: float
    delta: float
    canaries: int
    guesses: int
    correct: int
    confidence: float
    relation: str

    @property
    def broken(self) -> bool:
        """Whether the certified epsilon is refuted."""
        return self.epsilon_lower > self.epsilon_claimed * (1 + 1e-9)

    def to_json(self) -> dict[str, object]:
        """Return a JSON object, in which infinities are the string "inf"."""
        return to_json_object(self, broken=self.broken, trials=1)

    def __str__(self) -> str:
        return (
            f"{self.learner}, one run: {'BROKEN' if self.broken else 'not broken'}\n"
            f"  claimed     epsilon = {self.epsilon_claimed:.4g} at delta = {self.delta:.3g}\n"
            f"  audited     epsilon >= {self.epsilon_lower:.4g} with confidence {self.confidence:g}: {self.correct} of "
            f"{self.guesses} guesses about {self.canaries} canaries were right\n"
            f"  neighbours  {self.relation}\n"
            "  note        a test fit: the canaries spoil it, so do not publish its policy"
        )


def one_run(
    data: AbstractDataset,
    learner: AbstractLearner,
    privatizer: AbstractPrivatizer,
    *,
    canaries: int = 400,
    guesses: int | None = None,
    key: PRNGKeyArray | None = None,
    confidence: float = 0.95,
) -> OneRunReport:
    """Audit one `fit` of your own table with invented people.

    Arguments:
        data: the table. The canaries are added in memory and are never written anywhere.
        learner, privatizer: as for `fit`.
        canaries: how many people to invent.
        guesses: how many draws to guess, beginning with the most certain ones; half of the canaries by default.
        key: seeded noise and draws. By default both come from the operating system, as in a real fit.
        confidence: the probability with which the bound holds.

    The attacker knows the records of all people and all canaries, but not which canaries were drawn. The part of
    real people in every release is subtracted exactly, and the draws are estimated from the rest by ridge
    regression (the posterior mean under Gaussian noise and draws of mean 1/2). A release of a group, or of a
    Poisson sample, contains a canary with the probability of being in it.
    """
    if not isinstance(learner, AbstractOfflineLearner):
        raise PairingError(
            f"`{type(learner).__name__}` does not learn from a table of people, so there is nothing to put canaries "
            "into. Use an offline learner such as `APVI`, or `lower_bound` for a recipe."
        )
    guesses = max(1, canaries // 2) if guesses is None else guesses
    if not 1 <= guesses <= canaries:
        raise ValueError(
            f"`guesses` is {guesses} of {canaries} `canaries`; guess at least 1, and at most all canaries."
        )
    bounded = data.with_sizes(*learner.space)
    noise_key, seed_key = (None, None) if key is None else jax.random.split(key)
    rng = np.random.default_rng(None if seed_key is None else np.asarray(jax.random.key_data(seed_key)))
    invented = _invented(bounded.bounds, canaries, rng)
    coins = rng.random(canaries) < 0.5
    transcript = record_fit(WithCanaries(bounded, invented, coins), learner, privatizer, noise_key)
    estimate = _estimated(transcript, bounded, invented)
    certain = np.argsort(-np.abs(estimate - 0.5), kind="stable")[:guesses]
    correct = int(((estimate > 0.5) == coins)[certain].sum())
    delta = privatizer.reported_delta
    replaced = "a canary in the table, or an empty record in its place (one of the neighbours under replace-one)"
    return OneRunReport(
        learner=type(learner).__name__,
        epsilon_claimed=epsilon_of(transcript.events, delta, adjacency=privatizer.adjacency),
        epsilon_lower=one_run_epsilon(guesses, correct, canaries, delta, confidence),
        delta=delta,
        canaries=canaries,
        guesses=guesses,
        correct=correct,
        confidence=confidence,
        relation=replaced if privatizer.adjacency == "replace-one" else "a canary in the table or not (add-remove)",
    )


@final
@dataclass(frozen=True, eq=False)
class WithCanaries(AbstractDataset):
    """A dataset with invented people added in memory.

    All canaries count as people, so that the number of people stays public. A canary that was drawn has one
    episode. A canary that was not drawn has none, which contributes nothing to any sum.
    """

    whole: AbstractDataset
    canaries: Trajectory = field(repr=False)
    coins: Bool[np.ndarray, " m"] = field(repr=False)

    @property
    def bounds(self) -> Bounds:  # type: ignore[override]
        return self.whole.bounds

    def check(self) -> Summary:
        whole, lengths = self.whole.check(), np.asarray(self.canaries.length)[self.coins]
        units, episodes = whole.num_units + len(self.coins), whole.num_episodes + len(lengths)
        return Summary(units, episodes, whole.num_left_out, whole.num_rows + int(lengths.sum()))

    def blocks(self) -> Iterator[Block]:
        yield from self.whole.blocks()
        if self.coins.any():
            yield self._invented_block()

    def unit_ids(self) -> Iterator[list[bytes]]:
        yield from self.whole.unit_ids()
        yield [_canary_id(i) for i in range(len(self.coins))]

    def encode_episodes(self) -> Iterator[tuple[Int[np.ndarray, " E"], list[bytes]]]:
        yield from self.whole.encode_episodes()
        block = self._invented_block()
        yield block.unit, encode_block(block, map(_canary_id, np.flatnonzero(self.coins).tolist()), True)

    def _invented_block(self) -> Block:
        put = np.flatnonzero(self.coins)
        lengths = np.asarray(self.canaries.length)[put]
        rows = np.arange(self.horizon)[None, :] < lengths[:, None]
        trajectory = (self.canaries.states, self.canaries.actions, self.canaries.rewards, self.canaries.next_states)
        return Block(self.whole.num_units + put, lengths, *(np.asarray(column)[put][rows] for column in trajectory))

    def with_sizes(self, num_states: int | None, num_actions: int) -> "WithCanaries":
        return replace(self, whole=self.whole.with_sizes(num_states, num_actions))


def _canary_id(i: int) -> bytes:
    """Return an id that no person can have: people's ids are text in UTF-8, and this is not valid UTF-8."""
    return b"\xff canary %d" % i


def _invented(bounds: Bounds, count: int, rng: np.random.Generator) -> Trajectory:
    """Make episodes within the table's own bounds, as long as allowed, with the largest or smallest reward at every
    step.

    Half of them stay in one state and repeat one action. The other half are random, so that they have little in
    common with each other.
    """
    H, S, A = bounds.horizon, bounds.known("num_states"), bounds.known("num_actions")
    s, a = rng.integers(S, size=(count, H + 1)), rng.integers(A, size=(count, H))
    still = np.arange(count) % 2 == 0
    s[still], a[still] = s[still, :1], a[still, :1]
    r = np.broadcast_to(rng.choice(bounds.reward_range, (count, 1)), (count, H)).astype(float)
    columns = (s[:, :-1].astype(np.int32), a.astype(np.int32), r, s[:, 1:].astype(np.int32))
    return Trajectory(*columns, np.full(count, H, np.int32))


def _estimated(transcript: FitTranscript, people: AbstractDataset, canaries: Trajectory) -> Float[np.ndarray, " m"]:
    """Estimate the draws from everything released: 1 is in the table, 0 is not."""
    declared = {d.name: d for d in transcript.learner.declare()}
    groups = {d.group for d in declared.values()} - {None}
    count = len(np.asarray(canaries.length))
    precision, signal = np.eye(count) / _PRIOR, np.full(count, 0.5 / _PRIOR)
    known = _Records(people)
    for step in transcript.steps:
        if not isinstance(step, Query):
            continue
        assert step.release is not None
        d = declared[step.name]
        share = d.sampling * (1.0 / len(groups) if d.group is not None else 1.0)
        X = share * step.answers(canaries)
        left = np.asarray(step.release.value - share * known.total(step.statistic, None, Floating(1.0, np.inf))).ravel()
        variance = max(step.scale**2, 1e-9 * float((X**2).sum(axis=1).max(initial=1e-9)))
        precision += X @ X.T / variance
        signal += X @ left / variance
    return np.linalg.solve(precision, signal)
