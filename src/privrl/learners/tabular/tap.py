"""TAP: TD errors and practice (privrl 2026), one learner for all kinds of finite worlds.

It counts and iterates: a private kernel n(s, a, s') carries sums of TD errors from one value function to the next.

    visits:       N(s, a), again where they are faint                                                   `anchor.py`
    next states:  a first look for well-visited (s, a), where a typical (s, a) is well above their noise;
                  if rows have few next states, a second look, and rewards by (s, a)              `tap_kernel.py`
    returns:      by state; their shrunken means are F_1
    round k:      sums of r + gamma F_k(s') - F_k(s) by (s, a);  value iteration on all rounds so far gives F_{k+1}
                                                                            `tap_planning.py`, `tap_shrinkage.py`

gamma = 1 - 1/H: the horizon as a random end. Every release is clipped at a quantile of its own norms, from a histogram
released before it. Where next states got a second look, the last plan goes backward from the horizon and knows how
many steps are left; otherwise the policy is stationary. Where only ends pay and hardly any (s, a) is well visited,
next states and TD errors would drown: then the rounds are those of `TDFP`, whose visits, ends and moves are one vector
without negative inner products (sqrt(2) C in place of 2 C), and visits are not asked for again.

**Shares.** Releases that are not made leave their share of mu^2 to the rounds (`Ask.skip`): which ones depends on
earlier releases alone, and on every path the shares add up to the declared total, a privacy filter for Gaussian
differential privacy (docs/proofs/accounting.md#a-filter-for-gaussian-noise).
All constants are public and were chosen on simulated worlds.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import AbstractOfflineLearner, Ask, Solution
from privrl.contracts.release import Declared
from privrl.learners.restriction import allowed_table, list_rules
from privrl.learners.tabular.advantages import advice_strength
from privrl.learners.tabular.anchor import Practice, practice
from privrl.learners.tabular.clip_levels import ClipLevel, averaged, clip_level
from privrl.learners.tabular.tap_kernel import Kernel, denoised, groups, kernel
from privrl.learners.tabular.tap_planning import (
    Evidence,
    Judgement,
    ahead_of_practice,
    improved,
    planned_by_step,
    with_round,
)
from privrl.learners.tabular.tdfp import TDFP, first_feature
from privrl.mdp.rules import Rules
from privrl.mdp.types import TabularPolicy
from privrl.statistics.norms import Norms
from privrl.statistics.setting_checks import check_terminal
from privrl.statistics.stay_sums import (
    AbstractStaySum,
    ClippedErrors,
    ClippedNextStates,
    ClippedReturns,
    ClippedRewards,
    ClippedVisits,
)

_NORMS = 0.008
_SHARES = {
    "visits": 0.08,
    "visits-again": 0.15,
    "next-states": 0.06,
    "next-states-again": 0.2,
    "rewards": 0.06,
    "returns": 0.05,
}
_WITH_NORMS = ("visits", "next-states", "rewards", "returns")
_NEXT_STATES = ("next-states-norms", "next-states", "next-states-again", "rewards-norms", "rewards")
_QUANTILES = {"visits": 0.7, "next-states": 0.7, "rewards": 0.9, "returns": 0.7, "round": 0.5}
_FAINT = 8.0  # visits of a typical (s, a), in standard deviations of their noise
_VISIBLE = 1.75  # the same, for the noise of next states
_CONCENTRATED = 0.15  # sum p^2 of a typical row
_WELL_VISITED = 0.25  # share of all visits


class TAP(AbstractOfflineLearner):
    """Counts and iterates, in a stationary finite world of any kind.

    Arguments:
        num_states, num_actions, horizon: the size of the world, public.
        terminal: public states whose entry ends a stay.
        rewards_at_end: rewards are paid by the step that ends a stay alone, so returns are at most 1.
        rounds: shares of the rounds in what is left for them.
        anchor: kappa in typical posterior standard deviations: how strongly practice's own choice counts.
        pessimism: z, posterior standard deviations by which an advantage is lowered.
        support: the smallest frequency of an advised action in practice, relative to its most frequent action.
        spread: how much wider advantages are taken to differ than the fit of their standard deviation says.
        rules: public rules; those that do not depend on the previous action restrict every choice.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    rewards_at_end: bool = eqx.field(static=True, default=False)
    rounds: tuple[float, ...] = eqx.field(static=True, default=(1.0, 1.0, 1.0, 2.0))
    anchor: float = eqx.field(static=True, default=0.75)
    pessimism: float = eqx.field(static=True, default=0.5)
    support: float = eqx.field(static=True, default=0.05)
    spread: float = eqx.field(static=True, default=1.5)
    rules: Rules = eqx.field(static=True, default=Rules())
    gives_values: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_terminal(self.terminal, self.num_states)
        if not self.rounds or min(self.rounds) <= 0:
            raise ValueError(f"`rounds` is {self.rounds}; there must be at least one, each with a positive share.")
        if self.rewards_at_end and not self.terminal:
            raise ValueError(
                "`rewards_at_end` is on and `terminal` is empty, so no reward would ever be seen. Name the states that "
                "end a stay, or leave `rewards_at_end` out."
            )

    @property
    def space(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    @property
    def largest_return(self) -> float:
        """The public bound on the return of a stay."""
        return 1.0 if self.rewards_at_end else float(self.horizon)

    @property
    def _discount(self) -> float:
        return 1.0 - 1.0 / self.horizon

    @property
    def live(self) -> Bool[Array, " S"]:
        """The states that do not end a stay."""
        return jnp.ones(self.num_states, bool).at[jnp.asarray(self.terminal, int)].set(False)

    @property
    def return_range(self) -> tuple[float, float]:
        return 0.0, self.largest_return

    def bounds(self) -> dict[str, object]:
        return {
            "horizon": self.horizon,
            "counting": "first-visit",
            "contribution norm": "released quantiles of norms",
            "terminal states": list(self.terminal),
            "reward range": [0.0, 1.0],
            "return bound": self.largest_return,
            "rewards": "estimated",
            **list_rules(self.rules),
        }

    def declare(self) -> tuple[Declared, ...]:
        """Every release at its smallest share; what is skipped goes to the rounds."""
        left = 1.0 - sum(_SHARES.values()) - _NORMS * (len(_WITH_NORMS) + len(self.rounds))
        shares = {f"{name}-norms": _NORMS for name in _WITH_NORMS} | _SHARES
        for k, share in enumerate(self.rounds, 1):
            shares[f"round-norms-{k}"] = _NORMS
            shares[f"round-{k}"] = left * share / sum(self.rounds)
        return tuple(Declared(name, weight=share, gaussian=True) for name, share in shares.items())

    def fit(self, ask: Ask) -> Solution:
        """The policy, and the values or the value feature that it was planned with last."""
        visits = ClippedVisits(*self._world, jnp.ones(()))
        clip = self._clip(ask, "visits-norms", visits, 1.0, self._most_steps, _QUANTILES["visits"])
        N, noise = asked(ask, "visits", visits, clip)
        seen, share = practice(N, noise, self.live), _SHARES["visits"]
        if self.rewards_at_end and self._share_of_well_visited(seen) < _WELL_VISITED:
            return self._joint_rounds(ask)
        if float(seen.typical) < _FAINT * float(seen.noise):
            seen = practice(*averaged(N, noise, *asked(ask, "visits-again", visits, clip)), self.live)
            share += _SHARES["visits-again"]
        else:
            self._skip(ask, "visits-again")
        expected = float(seen.noise) * (share / _SHARES["next-states"]) ** 0.5  # about the noise of next states
        return self._rounds(ask, self._evidence(ask, seen, expected))

    def _joint_rounds(self, ask: Ask) -> Solution:
        """The rounds of `TDFP`, with everything that is left."""
        self._skip(ask, *_NEXT_STATES, "visits-again", *(f"round-norms-{k + 1}" for k in range(len(self.rounds))))
        Y, noise = self._returns(ask)
        return TDFP(*self._world, shares=self.rounds, rules=self.rules).rounds_from(
            ask, *first_feature(Y, noise**2, self.live)
        )

    def _rounds(self, ask: Ask, evidence: Evidence) -> Solution:
        seen = evidence.practice
        Y, noise = self._returns(ask)
        F = self.largest_return * mean_returns(Y, noise, self.live)
        judgement = Judgement(
            self._discount,
            self.largest_return,
            self.anchor,
            self.pessimism,
            self.support,
            self.spread,
            allowed_table(self.rules, self.num_states),
        )
        for k in range(len(self.rounds)):
            errors = ClippedErrors(*self._world, jnp.ones(()), F, self._discount, self.largest_return)
            smallest, largest = 0.01 * self.largest_return, 2.0 * self.largest_return
            clip = self._clip(ask, f"round-norms-{k + 1}", errors, smallest, largest, _QUANTILES["round"])
            sums, noise = asked(ask, f"round-{k + 1}", errors, clip)
            variance = clip.square / clip.kept**2 * clip.people
            variance = variance / jnp.maximum(jnp.where(seen.visible, seen.visits, 0.0).sum(), 1.0)
            evidence = with_round(evidence, jnp.asarray(float(k)), sums, noise, F, variance, judgement)
            pi, F = improved(evidence, F, judgement)
        steps = (self.horizon, *self.space)
        plans = bool(evidence.model)
        chosen = planned_by_step(evidence, judgement, self.horizon) if plans else jnp.broadcast_to(pi, steps)
        strength = advice_strength(ahead_of_practice(evidence, F, judgement), seen.state_weights)
        return Solution(TabularPolicy(chosen, self.rules), F, strength)

    @property
    def _world(self) -> tuple[int, int, int, tuple[int, ...]]:
        return self.num_states, self.num_actions, self.horizon, self.terminal

    @property
    def _most_steps(self) -> float:
        """The largest norm of a stay's visits."""
        return float(np.sqrt(self.horizon)) + 1.0

    def _clip(
        self, ask: Ask, name: str, of: AbstractStaySum, smallest: float, largest: float, quantile: float
    ) -> ClipLevel:
        norms = Norms(of, smallest, largest)
        return clip_level(ask(name, norms), norms.edges, quantile)

    def _skip(self, ask: Ask, *names: str) -> None:
        """Leaves the shares of these releases to the rounds, in proportion to whole shares of theirs."""
        least = min(self.rounds)
        to = tuple(f"round-{k}" for k, share in enumerate(self.rounds, 1) for _ in range(round(share / least)))
        for name in names:
            ask.skip(name, to)

    def _evidence(self, ask: Ask, seen: Practice, expected: float) -> Evidence:
        """What is known before the first round: the kernel, and rewards, as far as they are worth asking for."""
        S, A, R = self.num_states, self.num_actions, len(self.rounds)
        none = Kernel.unknown(seen.state_weights, A)
        nothing = jnp.zeros(S * A)
        rounds = (jnp.zeros((R, S * A)), jnp.zeros(R), jnp.zeros((R, S)), jnp.zeros(R), jnp.zeros(()))
        start = Evidence(seen, none, self.live, *rounds, nothing, nothing, jnp.zeros(()), jnp.ones(()))
        pairs = self._well_visited(seen)
        if pairs is None or float(seen.typical) < _VISIBLE * expected:
            self._skip(ask, *_NEXT_STATES)
            return start
        after = ClippedNextStates(*self._world, jnp.ones(()), pairs, self.rewards_at_end)
        clip = self._clip(ask, "next-states-norms", after, 1.0 / 2.0, self._most_steps, _QUANTILES["next-states"])
        T, noise = asked(ask, "next-states", after, clip)
        known, ends, variances = kernel(T, noise, pairs, start.visits, seen.state_weights)
        weights = start.visits.at[pairs].get(mode="fill", fill_value=0.0)
        if float((weights * known.concentration).sum()) < _CONCENTRATED * float(weights.sum()):
            self._skip(ask, "next-states-again", "rewards-norms", "rewards")
            return eqx.tree_at(lambda e: e.kernel, start, known)
        T, noise = averaged(T, noise, *asked(ask, "next-states-again", after, clip))
        known, ends, variances = kernel(T, noise, pairs, start.visits, seen.state_weights)
        if self.rewards_at_end:
            self._skip(ask, "rewards-norms", "rewards")
            r, v = (nothing.at[pairs].set(x[:, 0], mode="drop") for x in (ends, variances))
        else:
            r, v = self._rewards(ask, start.visits, seen)
        return eqx.tree_at(
            lambda e: (e.kernel, e.rewards, e.reward_variances, e.model), start, (known, r, v, jnp.ones(()))
        )

    def _enough(self, seen: Practice) -> Bool[np.ndarray, "S A"]:
        """The (s, a) that are well visited."""
        return np.asarray(seen.visible & (seen.visits > seen.noise * np.sqrt(self.num_actions)))

    def _share_of_well_visited(self, seen: Practice) -> float:
        """Their share of all visits."""
        n = np.maximum(np.asarray(seen.visits), 0.0)
        return float(n[self._enough(seen)].sum() / max(n.sum(), 1.0))

    def _well_visited(self, seen: Practice) -> Int[Array, " K"] | None:
        """The (s, a) whose next states are asked for, filled up to a power of two so that few shapes are compiled."""
        enough = self._enough(seen)
        pairs = np.flatnonzero(enough.ravel())
        if len(pairs) == 0:
            return None
        size = 1 << (len(pairs) - 1).bit_length()
        return jnp.asarray(np.pad(pairs, (0, size - len(pairs)), constant_values=enough.size), int)

    def _rewards(
        self, ask: Ask, visits: Float[Array, " SA"], seen: Practice
    ) -> tuple[Float[Array, " SA"], Float[Array, " SA"]]:
        paid = ClippedRewards(*self._world, jnp.ones(()))
        clip = self._clip(ask, "rewards-norms", paid, 0.02, self._most_steps, _QUANTILES["rewards"])
        R, noise = asked(ask, "rewards", paid, clip)
        x, v = denoised(R.reshape(-1, 1), noise, groups(visits, seen.visible.ravel()))
        return jnp.minimum(x[:, 0] / visits, 1.0), v[:, 0] / visits**2

    def _returns(self, ask: Ask) -> tuple[Float[Array, "S 2"], Float[Array, ""]]:
        """How well stays went on from each state, and how badly, as shares of the largest return; and the noise."""
        top = self.largest_return
        returns = ClippedReturns(*self._world, jnp.ones(()), self._discount, top, self.rewards_at_end)
        clip = self._clip(ask, "returns-norms", returns, 0.5, self._most_steps, _QUANTILES["returns"])
        return asked(ask, "returns", returns, clip)


def asked(
    ask: Ask, name: str, statistic: AbstractStaySum, clip: ClipLevel
) -> tuple[Float[Array, "..."], Float[Array, ""]]:
    """A clipped sum and its noise, both divided by what clipping has left of it."""
    release = ask(name, eqx.tree_at(lambda s: s.level, statistic, clip.level))
    return jnp.asarray(release.value) / clip.kept, release.noise.std.max() / clip.kept


@eqx.filter_jit
def mean_returns(Y: Float[Array, "S 2"], noise: Float[Array, ""], live: Bool[Array, " S"]) -> Float[Array, " S"]:
    """The mean of a state's returns, shrunk toward that of all; 0 in terminal states."""
    good, bad = jnp.where(live[:, None], Y, 0.0).sum(axis=0)
    mean = jnp.clip(good / jnp.maximum(good + bad, 1.0), 0.0, 1.0)
    effect, _ = first_feature(Y, noise**2, live)
    return jnp.where(live, jnp.clip(mean + effect, 0.0, 1.0), 0.0)
