"""Several candidates, of which people who were not learnt from choose one: advice, the most frequent action, practice.

Two groups of people, split by a secret coin each (`docs/design.md`, "Splitting people into groups"): `TAP` learns from
the first with the whole budget, and the second chooses, with the whole budget too. All candidates are made of the first
group's releases, or come from elsewhere, so having more of them costs nothing. The second group makes one release: the
number of the candidate whose sum of scores (`statistics/choice.py`) is the largest, by a noisy maximum.

    b(a|s)     practice, from the first group's visits
    V          mean returns of practice from each state, as shares of the largest return
    q_j(a|s)   candidate j; what it puts on actions with b < .02 is left to practice: nobody's stay says what they do
    score      f_j sum (q_j/b - 1)(r + V(s') - V(s)),   f_j = 1, except 1.35 for the most frequent action

**Formal guarantee.** The first group's releases cost what they cost `TAP`. Given these, weights and V are public, and
the choice is epsilon-differentially private for the second group (`privacy/noise/maximum.py`), whatever the number of
candidates. A person is in one group, so the cost of both is the larger one. Nobody of these two groups is among the
people whom `Evaluated` holds out, so its intervals know nothing of the choice.

**What is not promised.** Scores compare policies fairly where practice depends on the recorded state alone. Where it
follows something that was not recorded, they favour whoever departs from practice, and no score from the same table can
know. Hence f: advice is chosen over the most frequent action only if it seems to be worth a third more.
"""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineLearner, Ask
from privrl.contracts.release import Declared
from privrl.learners.evaluation.evaluated import LEARN
from privrl.learners.tabular.tap import TAP, Lesson
from privrl.mdp.types import TabularPolicy
from privrl.statistics.choice import CandidateScores

CHOOSE, CHOICE = "choose", "choice"
"""The group of people who choose, and their only release."""
OWN = ("the advice of dp-tap", "practice's most frequent action", "practice itself")
"""The candidates that are made of the learner's releases, in their order."""
LIMIT = 10.0
"""Where the score of a stay is cut, in largest returns."""
LEAST_PEOPLE = 5_000
"""With fewer people the sampling error of a score hides what is to be chosen by."""
SHARE = 0.1
"""Of the people, who choose."""
_FACTORS = (1.0, 1.35, 1.0)
_LEAST_SUPPORT = 0.02


class Chosen(AbstractOfflineLearner):
    """Learns with `TAP`, and lets other people choose among candidates.

    Arguments:
        learner: gives the advice, the values and the practice that scores are made of.
        candidates: probabilities `[k, H, S, A]`, or `[k, 1, S, A]`, of candidates from elsewhere in the place of
            `OWN`; where a state's add up to less than 1, the rest is left to practice.
        share: of the people, who choose; `None`: nobody chooses, everybody is learnt from, and the advice is taken.
    """

    learner: TAP
    candidates: Float[Array, "k G S A"] | None = None
    share: float | None = eqx.field(static=True, default=SHARE)
    gives_values: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if self.share is not None and not 0.0 < self.share < 1.0:
            raise ValueError(f"`share` is {self.share}; it must lie in (0, 1).")
        if self.candidates is not None:
            k, G = self.candidates.shape[:2]
            if k < 2 or G not in (1, self.horizon) or self.candidates.shape[2:] != self.space:
                raise ValueError(
                    f"`candidates` has shape {self.candidates.shape}; give probabilities of at least two candidates in "
                    f"{self.space[0]} states and {self.space[1]} actions, for all steps together or for each of "
                    f"{self.horizon}."
                )

    @classmethod
    def by_rule(cls, learner: TAP, people: int | None) -> "Chosen":
        """Whether people choose is decided from their public number alone, before anybody's record is read: if at
        least `LEAST_PEOPLE` would. A number that is not public is too small."""
        return cls(learner, share=SHARE if people is not None and SHARE * people >= LEAST_PEOPLE else None)

    @property
    def horizon(self) -> int:
        return self.learner.horizon

    @property
    def space(self) -> tuple[int, int]:
        return self.learner.space

    def bounds(self) -> dict[str, Any]:
        chooses = {} if self.share is None else {"largest score": LIMIT, "share that chooses": self.share}
        return {**self.learner.bounds(), **chooses}

    def declare(self) -> tuple[Declared, ...]:
        if self.share is None:
            return self.learner.declare()
        return (
            *(replace(d, group=LEARN) for d in self.learner.declare()),
            Declared(CHOICE, access="choice", group=CHOOSE, group_share=self.share),
        )

    def fit(self, ask: Ask) -> TabularPolicy:
        return self.fit_with_values(ask)[0]

    def fit_with_values(self, ask: Ask) -> tuple[TabularPolicy, Float[Array, " S"]]:
        lesson = self.learner.lesson(ask)
        if self.share is None:
            return lesson.policy, lesson.values
        practice = lesson.practice.probabilities
        practice = practice / practice.sum(axis=-1, keepdims=True)
        candidates, factors = self._candidates(lesson)
        scores = CandidateScores(
            factors[:, None, None, None] * weights(candidates, practice),
            lesson.mean_returns,
            self.horizon,
            self.learner.terminal,
            self.learner.largest_return,
            LIMIT,
        )
        chosen = candidates[int(ask(CHOICE, scores).value[0])]
        chosen = chosen + (1.0 - chosen.sum(axis=-1, keepdims=True)) * practice[None]
        return TabularPolicy(jnp.broadcast_to(chosen, (self.horizon, *self.space))), lesson.values

    def _candidates(self, lesson: Lesson) -> tuple[Float[Array, "k G S A"], Float[Array, " k"]]:
        """Probabilities, and the factors of scores."""
        if self.candidates is not None:
            return self.candidates, jnp.ones(self.candidates.shape[0])
        advice = lesson.policy.probabilities
        own = (advice, jnp.broadcast_to(lesson.practice.most_taken, advice.shape), jnp.zeros_like(advice))
        return jnp.stack(own), jnp.asarray(_FACTORS)


def weights(candidates: Float[Array, "k G S A"], practice: Float[Array, "S A"]) -> Float[Array, "k G S A"]:
    """q/b - 1; for b itself its mean over actions is 0."""
    b = practice[None, None]
    supported = jnp.where(b >= _LEAST_SUPPORT, candidates, 0.0)
    left = 1.0 - supported.sum(axis=-1, keepdims=True)
    return supported / jnp.maximum(b, _LEAST_SUPPORT) + left - 1.0
