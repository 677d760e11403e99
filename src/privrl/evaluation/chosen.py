"""Advice of several learners, practice's most frequent action, or practice itself: other people choose.

Two groups of people, split by a secret coin each (`docs/proofs/tables.md#splitting-people-into-groups`). From the
first one learners learn, each with a public share of the budget, and 16% of it measure what practice does, b, and its
mean returns V; the second chooses, with the whole budget, as in `chooser.py`.

    score      m_j + sum over steps of (q_j/b - 1)(r + V(s') - V(s))
    m_j        1.5% of the mean of V over visits for the most frequent action, else 0

Whether people choose at all, and what is learnt, are public rules: `enough_to_choose`, and the recipe `auto`.

**Formal guarantee.** The first group's releases are Gaussian and share one budget. Given these, weights and V are
public, and the choice is epsilon-differentially private for the second group (`privacy/noise/maximum.py`). A person is
in one group, so the cost of both is the larger one. `Evaluated` holds out people of neither group, so its intervals do
not depend on the choice.

**What is not promised.** If practice follows something that was not recorded, scores are biased in favour of policies
that depart from practice. Hence m: advice is chosen over the most frequent action only if it seems to be worth at least
1.5% of what people get today more. The margin is relative, so it does not depend on how rewards are scaled.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from privrl.contracts.learner import AbstractOfflineLearner, Ask, Solution
from privrl.contracts.release import Declared
from privrl.evaluation.chooser import (
    CHOICE,
    CHOOSE,
    LEAST_PEOPLE,
    LIMIT,
    seen_practice,
    weights,
)
from privrl.evaluation.evaluated import LEARN
from privrl.evaluation.renamed import Renamed, renamed
from privrl.learners.restriction import allowed_table
from privrl.mdp.rules import Rules
from privrl.mdp.types import TabularPolicy
from privrl.statistics.choice import CandidateScores
from privrl.statistics.setting_checks import check_terminal

SHARE = 0.1
"""Of the people, who choose."""
MODE, PRACTICE = "the most frequent action of current practice", "current practice"
_VISITS, _RETURNS = "practice", "mean-returns"
_MEASURED = {f"{_VISITS}-norms": 0.01, _VISITS: 0.09, f"{_RETURNS}-norms": 0.01, _RETURNS: 0.05}  # of the first group's
_MARGIN = 0.015  # of the mean of V


class Chosen(AbstractOfflineLearner):
    """Lets people who were not learnt from choose: advice of learners, the most frequent action, or practice.

    Arguments:
        learners: of one world; each gives one candidate, of its own class.
        terminal: public states whose entry ends a stay.
        rewards_at_end: only the step that ends a stay pays, so returns are at most 1.
        shares: of the learners, in what is left of the budget; equal ones if there are none.
        share: of the people, who choose; `None`: there is no selection step, and the first learner alone learns from
            all people.
        rules: public rules, the same as those of the learners; the other candidates keep them too.
    """

    learners: tuple[AbstractOfflineLearner, ...]
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    rewards_at_end: bool = eqx.field(static=True, default=False)
    shares: tuple[float, ...] = eqx.field(static=True, default=())
    share: float | None = eqx.field(static=True, default=SHARE)
    rules: Rules = eqx.field(static=True, default=Rules())
    gives_values: ClassVar[bool] = True

    def __check_init__(self) -> None:
        names = [type(learner).__name__ for learner in self.learners]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"`learners` are {names}; give at least one, and at most one of each class.")
        if len({(learner.space, learner.horizon) for learner in self.learners}) > 1:
            raise ValueError("`learners` are of worlds of different sizes; give those of one world.")
        if self.shares and (len(self.shares) != len(names) or not min(self.shares) > 0.0):
            raise ValueError(f"`shares` is {self.shares}; give a positive one for each of {names}, or none.")
        if self.share is not None and not 0.0 < self.share < 1.0:
            raise ValueError(f"`share` is {self.share}; it must lie in (0, 1), or be `None`.")
        check_terminal(self.terminal, self.space[0])

    @property
    def horizon(self) -> int:
        return self.learners[0].horizon

    @property
    def space(self) -> tuple[int, int]:
        return self.learners[0].space

    @property
    def largest_array(self) -> int:
        return max(learner.largest_array for learner in self._asked)

    @property
    def candidates(self) -> tuple[str, ...]:
        """The names of the candidates in their order; the first alone if there is no selection step."""
        advice = tuple(f"dp-{name.lower()}" for name in self._names)
        return advice if self.share is None else (*advice, MODE, PRACTICE)

    @property
    def _asked(self) -> tuple[AbstractOfflineLearner, ...]:
        return self.learners[:1] if self.share is None else self.learners

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(type(learner).__name__ for learner in self._asked)

    @property
    def _largest_return(self) -> float:
        return 1.0 if self.rewards_at_end else float(self.horizon)

    @property
    def return_range(self) -> tuple[float, float]:
        return 0.0, self._largest_return

    def bounds(self) -> dict[str, Any]:
        own = {"terminal states": list(self.terminal), "return bound": self._largest_return}
        if self.share is not None:
            own |= {"largest score": LIMIT, "share that chooses": self.share}
        each = {name: learner.bounds() for name, learner in zip(self._names, self._asked, strict=True)}
        together = {}
        for name, found in each.items():
            for what, bound in found.items():
                alike = all(other.get(what, bound) == bound for other in each.values())
                together[what if alike else f"{name}: {what}"] = bound
        return together | own

    def declare(self) -> tuple[Declared, ...]:
        if self.share is None:
            return tuple(self._learnt(1.0, None))
        return (
            *self._learnt(1.0 - sum(_MEASURED.values()), LEARN),
            *(Declared(name, weight=weight, group=LEARN, gaussian=True) for name, weight in _MEASURED.items()),
            Declared(CHOICE, access="choice", group=CHOOSE, group_share=self.share),
        )

    def _learnt(self, whole: float, group: str | None) -> Iterator[Declared]:
        """What the learners declare, with `whole` of the budget together."""
        shares = (1.0,) if self.share is None else self.shares or (1.0,) * len(self.learners)
        for name, learner, share in zip(self._names, self._asked, shares, strict=True):
            declared = learner.declare()
            unit = whole * share / sum(shares) / sum(d.weight for d in declared)
            yield from (replace(d, name=renamed(name, d.name), group=group, weight=unit * d.weight) for d in declared)

    def fit(self, ask: Ask) -> Solution:
        group = None if self.share is None else LEARN
        found = [learner.fit(Renamed(ask, name, group)) for name, learner in zip(self._names, self._asked, strict=True)]
        if self.share is None:
            return replace(found[0], choice=self.describe_choice(0))
        world = (*self.space, self.horizon, self.terminal)
        seen, V = seen_practice(ask, world, self._largest_return, (_VISITS, _RETURNS))
        b = seen.probabilities / seen.probabilities.sum(axis=-1, keepdims=True)
        advice = [jnp.asarray(solution.policy.arrays()["probabilities"]) for solution in found]
        allowed = allowed_table(self.rules, self.space[0])
        mode = seen.most_taken(allowed)
        candidates = (*advice, jnp.broadcast_to(mode, advice[0].shape), jnp.zeros_like(advice[0]))
        margins = jnp.zeros(len(candidates)).at[-2].set(_MARGIN * (seen.state_weights * V).sum())
        settings = (self.horizon, self.terminal, self._largest_return, LIMIT, margins)
        chosen = int(ask(CHOICE, CandidateScores(weights(jnp.stack(candidates), b), V, *settings)).value[0])
        kept = b if allowed is None else jnp.where(allowed, b, 0.0)
        left = kept.sum(axis=-1, keepdims=True)
        kept = jnp.where(left > 0.0, kept / jnp.where(left > 0.0, left, 1.0), mode)
        policies = (*candidates[:-1], jnp.broadcast_to(kept, advice[0].shape))
        values = next((solution.values for solution in found if solution.values is not None), V)
        strength = found[chosen].strength if chosen < len(found) else None
        return Solution(TabularPolicy(policies[chosen], self.rules), values, strength, self.describe_choice(chosen))

    def describe_choice(self, chosen: int) -> str:
        """A sentence for the report on how candidate number `chosen` was selected."""
        name = self.candidates[chosen]
        if self.share is None:
            return (
                f"No selection step: it needs a public number of at least {LEAST_PEOPLE / SHARE:,.0f} people to learn "
                f"from. Using {name}."
            )
        *others, last = (other for other in self.candidates if other != name)
        return (
            f"On the {self.share:.0%} of people set aside for selection, {name} scored best. The other candidates "
            f"were {', '.join(others)} and {last}."
        )


def enough_to_choose(people: int | None) -> bool:
    """Whether a tenth of this number of people can choose. A number that is not public is too small."""
    return people is not None and SHARE * people >= LEAST_PEOPLE
