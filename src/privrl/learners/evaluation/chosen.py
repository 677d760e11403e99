"""Advice, practice's most frequent action, or practice itself: people who were not learnt from choose.

Two groups of people, split by a secret coin each (`docs/design.md`, "Splitting people into groups"). `TAP` learns from
the first, with all of the budget but 6% that measure V, practice's mean returns; the second chooses, with the whole
budget, as in `chooser.py`. All candidates, b and V are made of the first group's releases, so having more candidates
costs nothing.

    score      m_j + sum over steps of (q_j/b - 1)(r + V(s') - V(s)),   m_j = .015 for the most frequent action, else 0

Whether people choose at all is a public rule: with fewer than 5,000 to choose, nobody does, and all are learnt from.

**Formal guarantee.** The first group's releases are Gaussian and share one budget. Given these, weights and V are
public, and the choice is epsilon-differentially private for the second group (`privacy/noise/maximum.py`). A person is
in one group, so the cost of both is the larger one. Nobody of these two groups is among the people whom `Evaluated`
holds out, so its intervals know nothing of the choice.

**What is not promised.** Where practice follows something that was not recorded, scores are biased in favour of whoever
departs from practice. Hence m: advice that seems to be worth less than 1.5% of the largest return more than the most
frequent action is not chosen over it.
"""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineLearner, Ask
from privrl.contracts.release import Declared
from privrl.learners.evaluation.chooser import (
    CHOICE,
    CHOOSE,
    LEAST_PEOPLE,
    LIMIT,
    measured,
    practice_returns,
    weights,
)
from privrl.learners.evaluation.evaluated import LEARN
from privrl.learners.tabular.tap import TAP, mean_returns
from privrl.mdp.types import TabularPolicy
from privrl.statistics.choice import CandidateScores

OWN = ("the advice of dp-tap", "practice's most frequent action", "practice itself")
"""The candidates, in their order."""
SHARE = 0.1
"""Of the people, who choose."""
_RETURNS = "mean-returns"
_MEASURED = {f"{_RETURNS}-norms": 0.01, _RETURNS: 0.05}  # shares of the first group's budget
_MARGINS = (0.0, 0.015, 0.0)  # in largest returns


class Chosen(AbstractOfflineLearner):
    """Learns with `TAP`, and lets other people choose between its advice, the most frequent action and practice.

    Arguments:
        learner: gives the advice.
        share: of the people, who choose; `None`: nobody chooses, everybody is learnt from, and the advice is taken.
    """

    learner: TAP
    share: float | None = eqx.field(static=True, default=SHARE)
    gives_values: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if self.share is not None and not 0.0 < self.share < 1.0:
            raise ValueError(f"`share` is {self.share}; it must lie in (0, 1), or be `None`.")

    @classmethod
    def by_rule(cls, learner: TAP, people: int | None) -> "Chosen":
        """Decided from the public number of people, before anybody's record is read. One that is not public is too
        small."""
        return cls(learner, SHARE if people is not None and SHARE * people >= LEAST_PEOPLE else None)

    @property
    def horizon(self) -> int:
        return self.learner.horizon

    @property
    def space(self) -> tuple[int, int]:
        return self.learner.space

    @property
    def largest_array(self) -> int:
        return self.learner.largest_array

    def bounds(self) -> dict[str, Any]:
        chooses = {} if self.share is None else {"largest score": LIMIT, "share that chooses": self.share}
        return {**self.learner.bounds(), **chooses}

    def declare(self) -> tuple[Declared, ...]:
        learnt = self.learner.declare()
        if self.share is None:
            return learnt
        left = (1.0 - sum(_MEASURED.values())) / sum(d.weight for d in learnt)
        return (
            *(replace(d, group=LEARN, weight=left * d.weight) for d in learnt),
            *(Declared(name, weight=weight, group=LEARN, gaussian=True) for name, weight in _MEASURED.items()),
            Declared(CHOICE, access="choice", group=CHOOSE, group_share=self.share),
        )

    def fit(self, ask: Ask) -> TabularPolicy:
        return self.fit_with_values(ask)[0]

    def fit_with_values(self, ask: Ask) -> tuple[TabularPolicy, Float[Array, " S"]]:
        tap = self.learner
        lesson = tap.lesson(ask)
        if self.share is None:
            return lesson.policy, lesson.values
        returns = practice_returns(*self.space, self.horizon, tap.terminal, tap.largest_return)
        V = mean_returns(*measured(ask, _RETURNS, returns), tap.live)
        b = lesson.practice.probabilities / lesson.practice.probabilities.sum(axis=-1, keepdims=True)
        advice = lesson.policy.probabilities
        candidates = (advice, jnp.broadcast_to(lesson.practice.most_taken, advice.shape), jnp.zeros_like(advice))
        ratios, settings = weights(jnp.stack(candidates), b), (tap.terminal, tap.largest_return, LIMIT, _MARGINS)
        scores = CandidateScores(ratios, V, self.horizon, *settings)
        policies = (*candidates[:2], jnp.broadcast_to(b, advice.shape))
        return TabularPolicy(policies[int(ask(CHOICE, scores).value[0])]), lesson.values
