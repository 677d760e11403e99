"""TDFP: temporal-difference feature planning (privrl 2026), for many states and few people per state.

Counts of next states drown in noise where there are hundreds of them. What a policy needs is much less: how often
(s, a) is taken, how often it ends a stay and how well, and how one scalar feature of the value moves along it.

    round 0:    (Y1, Y0) = returns to go and their complements by state              (a release)
                F_1 = shrunken Y1 (1 - mean) - Y0 mean,  w = max(Y1 + Y0, 0)
    round k:    b   = weighted standard deviation of F_k
                (N, T1, T0, M_k [, R]) by (s, a), M_k the sum of F_k(s') - F_k(s)    (a release)
                N, T1, T0, R averaged over the rounds; every M_j carried over to the feature F_k
                plan (`advantages.py`); F_{k+1} = planned value over the first half of the horizon

A round says less about the feature of another round: with F_j = c F_k + rest (weighted regression over states, share
of variance explained R^2), M_j/c estimates M_k with c^2 times its precision, and (R^2)^8 discounts the rest. Where
nearly all of the variance of a typical advantage is privacy noise, the feature stays, and the rounds simply average.

The shares u_k and the weights (wn, wT, wM) are public constants, and everything between releases is post-processing.
**Bias.** Values are a straight line in one feature and differences are clipped at b: this is biased for ever, and meant
for sizes at which noise, not bias, decides. An episode cut by the horizon has not ended: its last step is a step
like any other, and if only ends pay its return is unknown (round 0 leaves it out). What remains, as shares of
the gap from practice to the best (20,000 people, epsilon 1 / 100, 3 seeds, worlds for choosing constants):

- rewards in flight: in-flight-60x4 .67 / .86, where `APVI` has .96 at epsilon 1: one feature is too few.
- recorded states that hide how severe a case is: severity-48 .26 / .30, and glucose-108, which is both, -.03 / -.88.
  Sicker people are treated more, and it looks as if treatment harmed them; with less noise that is followed more
  closely. Recorded states do not show it, so nothing here mends it: compare with practice (`privrl evaluate`).
"""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from privrl.contracts.learner import AbstractOfflineLearner, Ask, Solution
from privrl.contracts.release import Declared
from privrl.learners.restriction import allowed_table, list_rules
from privrl.learners.tabular.advantages import (
    CellSums,
    advice_strength,
    plan,
    shrunken_means,
    weighted_line,
    weighted_mean,
)
from privrl.mdp.rules import Rules
from privrl.mdp.types import TabularPolicy
from privrl.statistics.differences import Differences, ReturnsToGo
from privrl.statistics.setting_checks import check_terminal


class TDFP(AbstractOfflineLearner):
    """Plans on endings and on the moves of one value feature, in a stationary finite world with terminal states.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.TDFP(3, 2, 4, terminal=(), in_flight_rewards=True)
    >>> privrl.fit(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=200, key=0)
    Result(released without evidence, TabularPolicy, TDFP, central privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        num_states, num_actions, horizon: the size of the world, public.
        terminal: public states whose entry ends a stay.
        in_flight_rewards: rewards are also paid on the way; without it only the reward that ends a stay is used.
        contribution_norm: C, the L2 norm to which one stay's vector of a round is scaled down.
        expected_cells: L0, how many (s, a) a stay is expected to touch.
        first_share: share of the budget for round 0.
        shares: u, the shares of the other rounds in the rest.
        emphasis: (cn, cT, cM), how a stay's squared norm is divided between visits, endings and moves, cM <= cn.
        reward_emphasis: cR, the same for rewards in flight.
        pessimism: z at no noise, in posterior standard deviations.
        spread: how much wider advantages are taken to differ than the fit of their standard deviation says.
        iterate_below: a round's planned value is the next feature if privacy's share of the variance is below this.
        rules: public rules; those that do not depend on the previous action restrict every choice.

    Raises:
        ValueError: a setting is out of its range.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True)
    in_flight_rewards: bool = eqx.field(static=True, default=False)
    contribution_norm: float = eqx.field(static=True, default=0.8)
    expected_cells: float = eqx.field(static=True, default=8.0)
    first_share: float = eqx.field(static=True, default=0.05)
    shares: tuple[float, ...] = eqx.field(static=True, default=(0.1, 0.1, 0.15, 0.15, 0.2, 0.3))
    emphasis: tuple[float, float, float] = eqx.field(static=True, default=(0.2, 0.62, 0.18))
    reward_emphasis: float = eqx.field(static=True, default=0.2)
    pessimism: float = eqx.field(static=True, default=0.75)
    spread: float = eqx.field(static=True, default=2.0)
    iterate_below: float = eqx.field(static=True, default=0.95)
    rules: Rules = eqx.field(static=True, default=Rules())

    gives_values: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_terminal(self.terminal, self.num_states)
        if not self.terminal and not self.in_flight_rewards:
            raise ValueError(
                "`terminal` is empty and `in_flight_rewards` is off, so no reward would ever be seen. Name the states "
                "that end a stay, or set `in_flight_rewards=True`."
            )
        if not 0 < self.first_share < 1 or not self.shares or min(self.shares) <= 0:
            raise ValueError(
                f"`first_share` is {self.first_share} and `shares` is {self.shares}; the first must lie in (0, 1), and "
                "there must be at least one round, each with a positive share."
            )

    @property
    def space(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    @property
    def _largest_return(self) -> float:
        return float(self.horizon) if self.in_flight_rewards else 1.0

    @property
    def _live(self) -> Bool[Array, " S"]:
        return jnp.ones(self.num_states, bool).at[jnp.asarray(self.terminal, int)].set(False)

    @property
    def return_range(self) -> tuple[float, float]:
        return 0.0, self._largest_return

    def bounds(self) -> dict[str, object]:
        return {
            "horizon": self.horizon,
            "counting": "first-visit",
            "contribution norm": self.contribution_norm,
            "contribution norm of returns": self.contribution_norm * math.sqrt(self.expected_cells),
            "terminal states": list(self.terminal),
            "reward range": [0.0, 1.0],
            "return bound": self._largest_return,
            "rewards": "estimated",
            **list_rules(self.rules),
        }

    def declare(self) -> tuple[Declared, ...]:
        total = sum(self.shares)
        rounds = (
            Declared(f"round-{k}", weight=(1.0 - self.first_share) * u / total) for k, u in enumerate(self.shares, 1)
        )
        return (Declared("returns", weight=self.first_share), *rounds)

    def fit(self, ask: Ask) -> Solution:
        norm = self.contribution_norm * math.sqrt(self.expected_cells)
        shape = (self.num_states, self.horizon, norm, self._largest_return, self.terminal)
        returns = ask("returns", ReturnsToGo(*shape, ended_only=not self.in_flight_rewards))
        F, w = first_feature(jnp.asarray(returns.value), returns.noise.variance.max(), self._live)
        return self.rounds_from(ask, F, w)

    def rounds_from(self, ask: Ask, F: Float[Array, " S"], w: Float[Array, " S"]) -> Solution:
        """All rounds after round 0, from its feature and weights of states: the policy, and the last feature."""
        live, allowed = self._live, allowed_table(self.rules, self.num_states)
        rounds = _Rounds.empty(len(self.shares), 5 if self.in_flight_rewards else 4, self.num_states, self.num_actions)
        for k, share in enumerate(self.shares):
            rounds = self._asked(ask, rounds, k, share, F, w)
            sums = _combined(rounds, F, w, jnp.asarray(1.0 / self._largest_return))
            planned = plan(sums, F, w, live, self.horizon, self.pessimism, self.spread, allowed)
            if planned.noise_share < self.iterate_below:
                F = _next_feature(planned.values, F, w, live)
        ahead = planned.advantages[: self.horizon // 2 + 1].mean(axis=0)
        strength = advice_strength(jnp.where(live, ahead, 0.0), jnp.where(live, w, 0.0))
        return Solution(TabularPolicy(planned.policy.probabilities, self.rules), F, strength)

    def _asked(
        self, ask: Ask, rounds: "_Rounds", k: int, share: float, F: Float[Array, " S"], w: Float[Array, " S"]
    ) -> "_Rounds":
        """Releases the differences of F and undoes the weights: N, T1, T0, M and R in natural units."""
        cn, cT, cM = self.emphasis
        wn, wT, wM = math.sqrt(cn / self.expected_cells), math.sqrt(cT), math.sqrt(cM / self.expected_cells)
        wR = math.sqrt(self.reward_emphasis / self.expected_cells) if self.in_flight_rewards else None
        b = _deviation(F, w)
        shape = (self.num_states, self.num_actions, self.horizon, self.terminal)
        weights = (self.contribution_norm, wn, wT, wM)
        release = ask(f"round-{k + 1}", Differences(*shape, *weights, F, b, wR, self._largest_return))
        paid = [] if wR is None else [1.0 / (wR * self._largest_return)]
        units = jnp.asarray([1.0 / wn, 1.0 / wT, 1.0 / wT, b / wM, *paid])
        sums = jnp.moveaxis(jnp.asarray(release.value), -1, 0) * units[:, None, None]
        new = _Rounds(sums, release.noise.variance.max() * units**2, F, b, jnp.asarray(share))
        return jax.tree.map(lambda all_rounds, one: all_rounds.at[k].set(one), rounds, new)


class _Rounds(eqx.Module):
    """Every round's sums and noise variances, its feature with scale b, and its share; 0 where it is still to come."""

    sums: Float[Array, "*K entries S A"]
    variances: Float[Array, "*K entries"]
    features: Float[Array, "*K S"]
    scales: Float[Array, "*K"]
    shares: Float[Array, "*K"]

    @classmethod
    def empty(cls, K: int, entries: int, S: int, A: int) -> "_Rounds":
        shapes = ((K, entries, S, A), (K, entries), (K, S), (K,), (K,))
        return cls(*(jnp.zeros(shape) for shape in shapes))


@eqx.filter_jit
def first_feature(
    Y: Float[Array, "S 2"], variance: Float[Array, ""], live: Bool[Array, " S"]
) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
    """F_1, how much better than average stays go on from a state, and the weights w of states."""
    Y1, Y0 = jnp.where(live[:, None], Y, 0.0).T
    w = jnp.maximum(Y1 + Y0, 0.0)
    mean = jnp.clip(Y1.sum() / jnp.maximum((Y1 + Y0).sum(), 1.0), 0.0, 1.0)
    noise = variance * ((1.0 - mean) ** 2 + mean**2) + w * mean * (1.0 - mean)
    e = jnp.where(w > 0, Y1 * (1.0 - mean) - Y0 * mean, 0.0)
    return shrunken_means(e, w, jnp.where(w > 0, noise, 0.0), largest=0.04, smallest=1e-6), w


@eqx.filter_jit
def _next_feature(
    values: Float[Array, "H S"], F: Float[Array, " S"], w: Float[Array, " S"], live: Bool[Array, " S"]
) -> Float[Array, " S"]:
    """The planned value, averaged over the first half of the steps and centred; F again if it is flat."""
    V = values[: values.shape[0] // 2 + 1].mean(axis=0)
    centred = jnp.where(live, V - weighted_mean(V, w), 0.0)
    return jnp.where(weighted_mean(centred**2, w) > 1e-12, centred, F)


@eqx.filter_jit
def _deviation(F: Float[Array, " S"], w: Float[Array, " S"]) -> Float[Array, ""]:
    """b, the weighted standard deviation of F over states; never 0, since differences are divided by it."""
    return jnp.maximum(jnp.sqrt(weighted_mean((F - weighted_mean(F, w)) ** 2, w)), 1e-6)


@eqx.filter_jit
def _combined(rounds: _Rounds, F: Float[Array, " S"], w: Float[Array, " S"], reward_unit: Float[Array, ""]) -> CellSums:
    """All rounds so far as one: averages with the shares as weights, and moves carried over to F."""
    u = rounds.shares / rounds.shares.sum()
    mean = jnp.tensordot(u, rounds.sums, axes=1)
    variance = u**2 @ rounds.variances
    M, move_noise = _moves(rounds, F, w)
    R, reward_noise = (mean[4], variance[4]) if mean.shape[0] > 4 else (jnp.zeros_like(M), jnp.zeros(()))
    N, T1, T0 = mean[:3]
    return CellSums(N, T1, T0, M, R, variance[0], variance[1], move_noise, reward_noise, reward_unit)


def _moves(
    rounds: _Rounds, F: Float[Array, " S"], w: Float[Array, " S"]
) -> tuple[Float[Array, "S A"], Float[Array, ""]]:
    """M for the feature F and its noise variance: a weighted mean of M_j/c_j over the rounds with c_j > 0.

    The noise of round j has variance proportional to b_j^2/u_j, which gives the weights where there is no noise too.
    """
    _, c, explained = jax.vmap(weighted_line, in_axes=(0, None, None))(rounds.features, F, w)
    used = (c > 0) & (rounds.shares > 0)
    weight = jnp.where(used, explained**8 * c**2 * rounds.shares / jnp.where(used, rounds.scales, 1.0) ** 2, 0.0)
    weight = weight / jnp.where(used.any(), weight.sum(), 1.0) / jnp.where(used, c, 1.0)
    return jnp.tensordot(weight, rounds.sums[:, 3], axes=1), weight**2 @ rounds.variances[:, 3]
