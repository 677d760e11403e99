"""TDFP: temporal-difference feature planning, for many states and few people per state.

Counts of next states drown in noise where there are hundreds of them. What a policy needs is much less: how often
(s, a) is taken, how often it ends a stay and how well, and how one scalar feature of the value moves along it.

    round 0:    (Y1, Y0) = returns to go and their complements by state              (a release)
                F_1 = shrunken Y1 (1 - mean) - Y0 mean,  w = max(Y1 + Y0, 0)
    round k:    b   = weighted standard deviation of F_k
                (N, T1, T0, M_k [, R]) by (s, a), M_k the sum of F_k(s') - F_k(s)    (a release)
                N, T1, T0, R averaged over the rounds; every M_j carried over to the feature F_k
                plan (`_advantages.py`); F_{k+1} = planned value over the first half of the horizon

A round says less about the feature of another round: with F_j = c F_k + rest (weighted regression over states, share
of variance explained R^2), M_j/c estimates M_k with c^2 times its precision, and (R^2)^8 discounts the rest. Where
nearly all of the variance of a typical advantage is privacy noise, the feature stays, and the rounds simply average.

The shares u_k and the weights (wn, wT, wM) are public constants, and everything between releases is post-processing.
Values are a straight line in one feature and differences are clipped at b: this is biased for ever, and meant for sizes
at which noise, not bias, decides.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from privrl.learners._advantages import Planned, Sums, plan, shrunken_means, weighted_line, weighted_mean
from privrl.learners._base import AbstractOfflineLearner, Ask
from privrl.mdp import TabularPolicy
from privrl.privacy import Declared, Release
from privrl.statistics._differences import Differences, ReturnsToGo


class TDFP(AbstractOfflineLearner):
    """Plans on endings and on the moves of one value feature, in a stationary finite world with terminal states.

    Arguments:
        num_states, num_actions, horizon: the size of the world, public.
        terminal: public states whose entry ends a stay.
        in_flight_rewards: rewards are also paid on the way; without it only the reward that ends a stay is used.
        return_bound: the largest return; 1, or `horizon` with rewards in flight.
        contribution_norm: C, the L2 norm to which one stay's vector of a round is scaled down.
        expected_cells: L0, how many (s, a) a stay is expected to touch.
        first_share: share of the budget for round 0.
        shares: u, the shares of the other rounds in the rest.
        emphasis: (cn, cT, cM), how a stay's squared norm is divided between visits, endings and moves, cM <= cn.
        reward_emphasis: cR, the same for rewards in flight.
        pessimism: z at no noise, in posterior standard deviations.
        spread: how much wider advantages are taken to differ than the fit of their standard deviation says.
        iterate_below: a round's planned value is the next feature if privacy's share of the variance is below this.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True)
    in_flight_rewards: bool = eqx.field(static=True, default=False)
    return_bound: float | None = eqx.field(static=True, default=None)
    contribution_norm: float = eqx.field(static=True, default=0.8)
    expected_cells: float = eqx.field(static=True, default=8.0)
    first_share: float = eqx.field(static=True, default=0.05)
    shares: tuple[float, ...] = eqx.field(static=True, default=(0.1, 0.1, 0.15, 0.15, 0.2, 0.3))
    emphasis: tuple[float, float, float] = eqx.field(static=True, default=(0.2, 0.62, 0.18))
    reward_emphasis: float = eqx.field(static=True, default=0.2)
    pessimism: float = eqx.field(static=True, default=0.75)
    spread: float = eqx.field(static=True, default=2.0)
    iterate_below: float = eqx.field(static=True, default=0.95)

    def __check_init__(self) -> None:
        if any(not 0 <= s < self.num_states for s in self.terminal):
            raise ValueError(f"`terminal` is {self.terminal}; states lie in [0, {self.num_states}).")
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
        if self.return_bound is not None:
            return self.return_bound
        return float(self.horizon) if self.in_flight_rewards else 1.0

    @property
    def _live(self) -> Bool[Array, " S"]:
        return jnp.ones(self.num_states, bool).at[jnp.asarray(self.terminal, int)].set(False)

    def bounds(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "counting": "first-visit",
            "contribution norm": self.contribution_norm,
            "contribution norm of returns": self.contribution_norm * math.sqrt(self.expected_cells),
            "terminal states": list(self.terminal),
            "reward range": [0.0, 1.0],
            "return bound": self._largest_return,
            "rewards": "estimated",
        }

    def declare(self) -> tuple[Declared, ...]:
        total = sum(self.shares)
        rounds = (
            Declared(f"round-{k}", weight=(1.0 - self.first_share) * u / total) for k, u in enumerate(self.shares, 1)
        )
        return (Declared("returns", weight=self.first_share), *rounds)

    def fit(self, ask: Ask) -> TabularPolicy:
        F, w = self._first_feature(ask)
        rounds: list[_Round] = []
        while True:
            rounds.append(self._round(ask, len(rounds), F, w))
            planned = self._plan(rounds, F, w)
            if len(rounds) == len(self.shares):
                return planned.policy
            if planned.noise_share < self.iterate_below:
                F = self._next_feature(planned, F, w)

    def _first_feature(self, ask: Ask) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
        """F_1, how much better than average stays go on from a state, and the weights w of states."""
        norm = self.contribution_norm * math.sqrt(self.expected_cells)
        release = ask("returns", ReturnsToGo(self.num_states, self.horizon, norm, self._largest_return))
        Y1, Y0 = jnp.where(self._live[:, None], release.value, 0.0).T
        w = jnp.maximum(Y1 + Y0, 0.0)
        mean = jnp.clip(Y1.sum() / jnp.maximum((Y1 + Y0).sum(), 1.0), 0.0, 1.0)
        noise = release.noise.variance.max() * ((1.0 - mean) ** 2 + mean**2) + w * mean * (1.0 - mean)
        e = jnp.where(w > 0, Y1 * (1.0 - mean) - Y0 * mean, 0.0)
        return shrunken_means(e, w, jnp.where(w > 0, noise, 0.0), largest=0.04, smallest=1e-6), w

    def _round(self, ask: Ask, k: int, F: Float[Array, " S"], w: Float[Array, " S"]) -> "_Round":
        """Releases a round of differences of F and undoes the weights: N, T1, T0, M and R in natural units."""
        cn, cT, cM = self.emphasis
        wn, wT, wM = math.sqrt(cn / self.expected_cells), math.sqrt(cT), math.sqrt(cM / self.expected_cells)
        wR = math.sqrt(self.reward_emphasis / self.expected_cells) if self.in_flight_rewards else None
        b = jnp.maximum(jnp.sqrt(weighted_mean((F - weighted_mean(F, w)) ** 2, w)), 1e-6)
        shape = (self.num_states, self.num_actions, self.horizon, self.terminal)
        weights = (self.contribution_norm, wn, wT, wM)
        release = ask(f"round-{k + 1}", Differences(*shape, *weights, F, b, wR, self._largest_return))
        units = [1.0 / wn, 1.0 / wT, 1.0 / wT, b / wM] + ([] if wR is None else [1.0 / (wR * self._largest_return)])
        return _Round(release, jnp.asarray(units), F, b, self.shares[k])

    def _plan(self, rounds: "list[_Round]", F: Float[Array, " S"], w: Float[Array, " S"]) -> Planned:
        sums = _combined(rounds, F, w, 1.0 / self._largest_return)
        return plan(sums, F, w, self._live, self.horizon, self.pessimism, self.spread)

    def _next_feature(self, planned: Planned, F: Float[Array, " S"], w: Float[Array, " S"]) -> Float[Array, " S"]:
        """The planned value, averaged over the first half of the steps and centred; F again if it is flat."""
        V = planned.values[: self.horizon // 2 + 1].mean(axis=0)
        centred = jnp.where(self._live, V - weighted_mean(V, w), 0.0)
        return jnp.where(weighted_mean(centred**2, w) > 1e-12, centred, F)


class _Round(eqx.Module):
    """One round's release, the units of its entries, its feature with scale b, and its share of the budget."""

    release: Release
    units: Float[Array, " entries"]
    feature: Float[Array, " S"]
    scale: Float[Array, ""]
    share: float

    @property
    def sums(self) -> Float[Array, "entries S A"]:
        return jnp.moveaxis(jnp.asarray(self.release.value) * self.units, -1, 0)

    @property
    def variances(self) -> Float[Array, " entries"]:
        return self.release.noise.variance.max() * self.units**2


def _combined(rounds: list[_Round], F: Float[Array, " S"], w: Float[Array, " S"], reward_unit: float) -> Sums:
    """All rounds so far as one: plain averages with the shares as weights, and moves carried over to F."""
    total = sum(r.share for r in rounds)
    mean = sum((r.sums * (r.share / total) for r in rounds), start=jnp.zeros(()))
    variance = sum((r.variances * (r.share / total) ** 2 for r in rounds), start=jnp.zeros(()))
    M, move_noise = _moves(rounds, F, w)
    R, reward_noise = (mean[4], variance[4]) if mean.shape[0] > 4 else (jnp.zeros_like(M), jnp.zeros(()))
    N, T1, T0 = mean[:3]
    return Sums(N, T1, T0, M, R, variance[0], variance[1], move_noise, reward_noise, reward_unit)


def _moves(
    rounds: list[_Round], F: Float[Array, " S"], w: Float[Array, " S"]
) -> tuple[Float[Array, "S A"], Float[Array, ""]]:
    """M for the feature F and its noise variance: a weighted mean of M_j/c_j over the rounds with c_j > 0.

    The noise of round j has variance proportional to b_j^2/u_j, which gives the weights where there is no noise too.
    """
    M, noise, total = jnp.zeros_like(rounds[0].sums[3]), jnp.zeros(()), jnp.zeros(())
    for r in rounds:
        _, c, explained = weighted_line(r.feature, F, w)
        weight = jnp.where(c > 0, explained**8 * c**2 * r.share / r.scale**2, 0.0)
        c = jnp.where(c > 0, c, 1.0)
        M = M + weight * r.sums[3] / c
        noise = noise + weight**2 * r.variances[3] / c**2
        total = total + weight
    total = jnp.where(total > 0, total, 1.0)
    return M / total, noise / total**2
