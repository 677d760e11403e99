"""The chooser: policies from anywhere in, the number of the one that people seem to fare best with out.

People are split by a secret coin each (`docs/proofs/tables.md#splitting-people-into-groups`). The first half say what
practice does, b(a|s), and what its mean returns from each state are, V, with the whole budget. The second half choose,
with the whole budget too, by one release: the number of the candidate whose sum of scores (`statistics/choice.py`) is
the largest after noise.

    alpha(a|s) = min(1, 9 b/(1-b)), and 0 if b < .02: too few stays show what such an action does
    q_j(a|s)   = alpha pi_j, and what that leaves is left to practice: at most ten times as often as practice
    score      sum over steps of (q_j/b - 1)(r + V(s') - V(s)), cut to [-3, 3]

**Formal guarantee.** Given the first half's releases, b and V are public, and the choice is epsilon-differentially
private for the second half (`privacy/noise/maximum.py`), whatever the number of candidates. A person is in one half, so
the cost of both is the larger one.

**What is not promised.** Scores compare policies fairly if practice depends on the recorded state alone. If it follows
something that was not recorded, they favour policies that treat people as practice treats those in better health, and
no score from the same table can detect it.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineAnalysis, Ask
from privrl.contracts.release import Declared
from privrl.evaluation.evaluated import LEARN
from privrl.learners.tabular.anchor import Practice, practice
from privrl.learners.tabular.clip_levels import clip_level
from privrl.learners.tabular.tap import asked, mean_returns
from privrl.statistics.choice import CandidateScores
from privrl.statistics.norms import Norms
from privrl.statistics.setting_checks import check_terminal
from privrl.statistics.stay_sums import AbstractStaySum, ClippedReturns, ClippedVisits

CHOOSE, CHOICE = "choose", "choice"
"""The group of people who choose, and their only release."""
LIMIT = 3.0
"""Where the score of a stay is cut, in largest returns."""
LEAST_PEOPLE = 5_000
"""With fewer people who choose, the sampling error of a score hides what is to be chosen by."""
_SHARES = {"visits-norms": 0.05, "visits": 0.45, "returns-norms": 0.05, "returns": 0.45}
_QUANTILE = 0.7
_LEAST_SUPPORT = 0.02
_DIAL = 10.0


class Chooser(AbstractOfflineAnalysis):
    """Lets people choose among policies.

    Arguments:
        num_states, num_actions, horizon: the size of the world, public.
        candidates: probabilities `[k, H, S, A]`, or `[k, 1, S, A]` for all steps together; where those of a state add
            up to less than 1, the rest is left to practice.
        terminal: public states whose entry ends a stay.
        rewards_at_end: only the step that ends a stay pays, so returns are at most 1.
        share: of the people, who choose.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    candidates: Float[Array, "k G S A"]
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    rewards_at_end: bool = eqx.field(static=True, default=False)
    share: float = eqx.field(static=True, default=0.5)

    def __check_init__(self) -> None:
        check_terminal(self.terminal, self.num_states)
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"`share` is {self.share}; it must lie in (0, 1).")
        k, G = self.candidates.shape[:2]
        if k < 2 or G not in (1, self.horizon) or self.candidates.shape[2:] != self.space:
            raise ValueError(
                f"`candidates` has shape {self.candidates.shape}; give probabilities of at least two candidates in "
                f"{self.num_states} states and {self.num_actions} actions, for all steps together or for each of "
                f"{self.horizon}."
            )
        totals = self.candidates.sum(axis=-1)
        if not bool((self.candidates >= 0.0).all() & (totals <= 1.0 + 1e-6).all()):  # also where one is not a number
            raise ValueError(
                "`candidates` has entries that are no probabilities: each must be a number, at least 0, and those of a "
                "state must add up to at most 1. Nothing was released."
            )

    @property
    def space(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    @property
    def return_range(self) -> tuple[float, float]:
        return 0.0, self._largest_return

    def bounds(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "counting": "first-visit",
            "contribution norm": "released quantiles of norms",
            "largest score": LIMIT,
            "share that chooses": self.share,
            "terminal states": list(self.terminal),
            "reward range": [0.0, 1.0],
            "return bound": self._largest_return,
            "rewards": "estimated",
        }

    @property
    def _largest_return(self) -> float:
        return 1.0 if self.rewards_at_end else float(self.horizon)

    def declare(self) -> tuple[Declared, ...]:
        return (
            *(Declared(name, weight=share, group=LEARN, gaussian=True) for name, share in _SHARES.items()),
            Declared(CHOICE, access="choice", group=CHOOSE, group_share=self.share),
        )

    def choose(self, ask: Ask) -> int:
        """The number of the chosen candidate, from releases alone."""
        world = (self.num_states, self.num_actions, self.horizon, self.terminal)
        seen, V = seen_practice(ask, world, self._largest_return, ("visits", "returns"))
        ratios = weights(self.candidates, seen.probabilities / seen.probabilities.sum(axis=-1, keepdims=True))
        scores = CandidateScores(ratios, V, self.horizon, self.terminal, self._largest_return, LIMIT)
        return int(ask(CHOICE, scores).value[0])


def seen_practice(
    ask: Ask, world: tuple[int, int, int, tuple[int, ...]], largest_return: float, names: tuple[str, str]
) -> tuple[Practice, Float[Array, " S"]]:
    """What practice does, and V, its mean returns from each state: two releases of these names, and their norms.

    V has no discount: with one, r + V(s') - V(s) would on average be above 0 for people who live longer, and scores
    would favour what is done to them.
    """
    live = jnp.ones(world[0], bool).at[jnp.asarray(world[3], int)].set(False)
    returns = ClippedReturns(*world, jnp.ones(()), 1.0, largest_return)
    seen = practice(*_measured(ask, names[0], ClippedVisits(*world, jnp.ones(()))), live)
    return seen, mean_returns(*_measured(ask, names[1], returns), live)


def _measured(ask: Ask, name: str, of: AbstractStaySum) -> tuple[Float[Array, "..."], Float[Array, ""]]:
    """A sum, clipped at a released quantile of its norms, and its noise."""
    norms = Norms(of, 0.5, float(of.horizon) ** 0.5 + 1.0)
    level = clip_level(ask(f"{name}-norms", norms), norms.edges, _QUANTILE)
    return asked(ask, name, of, level)


def weights(candidates: Float[Array, "k G S A"], practice: Float[Array, "S A"]) -> Float[Array, "k G S A"]:
    """q/b - 1, whose mean under practice is 0."""
    b = practice[None, None]
    alpha = jnp.where(b < 1.0, jnp.minimum(1.0, (_DIAL - 1.0) * b / jnp.where(b < 1.0, 1.0 - b, 1.0)), 1.0)
    supported = jnp.where(b >= _LEAST_SUPPORT, alpha * candidates, 0.0)
    left = 1.0 - supported.sum(axis=-1, keepdims=True)
    return supported / jnp.maximum(b, _LEAST_SUPPORT) + left - 1.0
