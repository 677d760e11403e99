"""APVI: adaptive pessimistic value iteration on counts [qiao-wang Algorithm 1].

     2: n(s,a), n(s,a,s') by (3), P by (5), V_{H+1} = 0                       (releases, then post-processing)
     3: for h = H, ..., 1:
     4:     Q_h     = r_h + P_h V_{h+1}
     5:     Gamma_h = C1 sqrt(Var_P(V_{h+1}) iota / (n - E)) + C2 S H E iota / n   where n > E, otherwise C H
     6:     Q_h     = Q_h - Gamma_h
     7:     Q_h     = clip(Q_h, 0, H-h+1)
     8:     pi_h    = argmax_a Q_h,  V_h = max_a Q_h

iota = ln(HSA/failure). Pairs with n > E are trusted. E is twice a bound on the largest noise, read off its
distribution; the paper prints 4 sqrt(H ln(4 H S^2 A/failure)/rho), a union bound on the same maximum, which no setting
here uses.

Where `calibration="practical"` departs from the box (docs/papers.md#apvi):

- Line 5. S H E iota/n exceeds H at every size of interest, so the box learns nothing. With R the range of V_{h+1}
  we take  C1 (sqrt(Var iota/(n - E)) + R iota/n) + C2 R E/n:  Bernstein's inequality for the chance of few samples, as
  in the non-private algorithm, and what noise of size E can move.
- Line 8. Where a state has trusted actions only these are compared: a Q of 0 by penalty must not tie with a Q of 0 by
  default. Where it has none, the most-taken action (the largest noisy count) is played and V stays 0.

Both calibrations: (3) gives n <= n' + E/2, so a pair whose noisy visit count n' is at most E/2 can never be trusted.
Its next states are not asked for, and no noise is drawn for them. A next state that was not recorded is the end: an
extra column whose value is 0. The paper knows its rewards. Estimated ones are lowered by two standard deviations of
their noise, for the best of several noisy rewards is too good, and divided by n', for n is biased by about E/2.
"""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import AbstractOfflineLearner, Ask, Solution
from privrl.contracts.release import Declared
from privrl.learners.restriction import allowed_table, list_rules
from privrl.learners.tabular.consistency import consistent_counts
from privrl.mdp.rules import Rules
from privrl.mdp.types import TabularPolicy
from privrl.statistics.counts import Counting, RewardSums, TransitionCounts, VisitCounts
from privrl.statistics.setting_checks import check_choice

_REWARD_SHARE = 0.4
_CONSTANTS = {"practical": (0.1, 0.01), "paper": (math.sqrt(2), 16.0)}  # C1, C2


class APVI(AbstractOfflineLearner):
    """Pessimistic value iteration on (noisy) counts of a finite world.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.APVI(3, 2, 4)
    >>> privrl.fit(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=200, key=0)
    Result(released without evidence, TabularPolicy, APVI, central privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        num_states, num_actions, horizon: the size of the world, public.
        rewards: known mean rewards `[G, S, A]` (G = 1 or H), or `None`: then reward sums are released and paid for.
        arrival_rewards: known rewards `[S]` for entering a state, on top of `rewards`.
        counting: `"per-stage"` (the paper), `"pooled"` or `"first-visit"` (stationary worlds; H times fewer cells).
        contribution_norm: clip each episode's vector of counts to this L2 norm.
        visit_share: share of the budget for n(s,a), against n(s,a,s'); estimated rewards take 2/5 of the budget first.
        calibration: penalty and ties as above (`"practical"`) or as printed (`"paper"`).
        bonus: C1, against the chance of few samples; by default .1, in the paper sqrt(2).
        noise_bonus: C2, against what noise hides; by default .01, in the paper 16.
        failure: probability with which a noise bound may fail (utility only, never privacy).
        rules: public rules; those that do not depend on the previous action restrict every choice.

    Raises:
        ValueError: a setting is out of its range.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    arrival_rewards: Float[Array, " S"] | None = None
    counting: Counting = eqx.field(static=True, default="per-stage")
    contribution_norm: float | None = eqx.field(static=True, default=None)
    visit_share: float = eqx.field(static=True, default=0.25)
    calibration: Literal["practical", "paper"] = eqx.field(static=True, default="practical")
    bonus: float | None = eqx.field(static=True, default=None)
    noise_bonus: float | None = eqx.field(static=True, default=None)
    failure: float = eqx.field(static=True, default=0.05)
    rules: Rules = eqx.field(static=True, default=Rules())

    def __check_init__(self) -> None:
        check_choice("calibration", self.calibration, tuple(_CONSTANTS))
        if not 0 < self.visit_share < 1:
            raise ValueError(f"`visit_share` is {self.visit_share}; it must lie strictly between 0 and 1.")

    @property
    def space(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    @property
    def _estimates_rewards(self) -> bool:
        return self.rewards is None and self.arrival_rewards is None

    def bounds(self) -> dict[str, object]:
        return {
            "horizon": self.horizon,
            "counting": self.counting,
            "contribution norm": self.contribution_norm or "none",
            "reward range": [0.0, 1.0],
            "rewards": "estimated" if self._estimates_rewards else "known",
            **list_rules(self.rules),
        }

    def declare(self) -> tuple[Declared, ...]:
        stages = self.horizon if self.counting == "per-stage" else 1
        shares = {"visits": self.visit_share, "transitions": 1 - self.visit_share}
        if self._estimates_rewards:
            shares["rewards"] = _REWARD_SHARE / (1 - _REWARD_SHARE)
        return tuple(Declared(name, times=stages, weight=share) for name, share in shares.items())

    def fit(self, ask: Ask) -> Solution:
        S, A, H = self.num_states, self.num_actions, self.horizon
        V = jnp.zeros(S)  # [qiao-wang A1:2]
        pi = []
        model = None
        for h in reversed(range(H)):  # [qiao-wang A1:3] our h counts from 0
            if model is None or self.counting == "per-stage":
                model = self._model(ask, h if self.counting == "per-stage" else None)
            known = jnp.zeros((S, A)) if self.rewards is None else self.rewards[min(h, self.rewards.shape[0] - 1)]
            V, pi_h = _backup(self, model, known, V, jnp.asarray(float(H - h)))
            pi.append(pi_h)
        return Solution(TabularPolicy(jnp.stack(pi[::-1]).reshape(H, S, A), self.rules))

    def _model(self, ask: Ask, stage: int | None) -> "_Model":
        """[qiao-wang eq. 3 and 5] from releases about one stage or all."""
        S, A = self.space
        at = None if stage is None else jnp.asarray(stage)
        shape = (S, A, self.horizon, self.counting, self.contribution_norm, at)
        each = self.failure / (2 * (1 if stage is None else self.horizon))
        visits = ask("visits", VisitCounts(*shape))
        taken = jnp.asarray(visits.value)
        half = visits.noise.max_bound(each)
        pairs = _padded(np.flatnonzero(np.asarray(taken).ravel() > float(half)), S * A)
        transitions = ask("transitions", TransitionCounts(*shape, pairs=pairs, with_end=True))
        half = jnp.maximum(half, transitions.noise.max_bound(each))
        noisy = taken.ravel().at[pairs].get(mode="fill", fill_value=0.0)
        P, n = _kernel(jnp.asarray(transitions.value), noisy, half)
        r = jnp.zeros_like(n)
        if self._estimates_rewards:
            sums = ask("rewards", RewardSums(*shape))
            least = jnp.asarray(sums.value - 2 * sums.noise.std).ravel()
            r = least.at[pairs].get(mode="fill", fill_value=0.0) / jnp.where(n > 2 * half, noisy, 1.0)
        E = 2 * half  # [qiao-wang A1:2] from the noise distribution; printed: 4 sqrt(H ln(4 H S^2 A/failure)/rho)
        return _Model(pairs, P, n, jnp.clip(r, 0.0, 1.0), E, taken)


class _Model(eqx.Module):
    """A kernel for the K pairs that may be trusted; where n <= E it means nothing."""

    pairs: Int[Array, " K"]
    P: Float[Array, "K after"]
    n: Float[Array, " K"]
    r: Float[Array, " K"]
    E: Float[Array, ""]
    taken: Float[Array, "S A"]


def _padded(pairs: Int[np.ndarray, " n"], nowhere: int) -> Int[Array, " K"]:
    """Sorted pair numbers, filled up to a power of two so that few shapes are compiled."""
    size = 1 << max(len(pairs) - 1, 0).bit_length()
    return jnp.asarray(np.concatenate([pairs, np.full(size - len(pairs), nowhere)]), int)


@jax.jit
def _kernel(
    transitions: Float[Array, "K after"], visits: Float[Array, " K"], half: Float[Array, ""]
) -> tuple[Float[Array, "K after"], Float[Array, " K"]]:
    counts = consistent_counts(transitions, visits, half)  # [qiao-wang eq. 3]
    n = counts.sum(axis=-1)
    return counts / jnp.where(n > 0, n, 1.0)[:, None], n  # [qiao-wang eq. 5] no kernel where n <= E, whose Q is 0


@eqx.filter_jit
def _backup(
    learner: APVI, model: _Model, known: Float[Array, "S A"], V: Float[Array, " S"], largest: Float[Array, ""]
) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
    """[qiao-wang A1:4-8] for one step."""
    S, A, H = learner.num_states, learner.num_actions, learner.horizon
    P, n, E = model.P, model.n, model.E
    G = jnp.append(V if learner.arrival_rewards is None else V + learner.arrival_rewards, 0.0)
    mean, square = P @ G, P @ G**2
    r = model.r + known.ravel().at[model.pairs].get(mode="fill", fill_value=0.0)
    Q = r + mean  # [qiao-wang A1:4]
    trusted = n > E
    left, n = jnp.where(trusted, n - E, 1.0), jnp.where(trusted, n, 1.0)
    iota = math.log(H * S * A / learner.failure)
    paper = learner.calibration == "paper"
    C1, C2 = (
        default if given is None else given
        for given, default in zip((learner.bonus, learner.noise_bonus), _CONSTANTS[learner.calibration], strict=True)
    )
    R = jnp.asarray(float(H)) if paper else G.max() - G.min()
    spread = jnp.maximum(square - mean**2, 0.0)
    chance, noise = jnp.sqrt(spread * iota / left), E / n
    if paper:
        Gamma = C1 * chance + C2 * S * H * iota * noise  # [qiao-wang A1:5] with our E, see A1:2
    else:  # [qiao-wang A1:5] without S H iota, see the module
        Gamma = C1 * (chance + R * iota / n) + C2 * R * noise
    Q = jnp.clip(Q - Gamma, 0.0, largest)  # [qiao-wang A1:6-7]
    table = jnp.zeros(S * A).at[model.pairs].set(jnp.where(trusted, Q, 0.0), mode="drop").reshape(S, A)
    eligible = jnp.zeros(S * A, bool).at[model.pairs].set(trusted, mode="drop").reshape(S, A)
    choice, taken, allowed = table, model.taken, allowed_table(learner.rules, S)
    if allowed is not None:
        choice, taken = (jnp.where(allowed, x, -jnp.inf) for x in (table, taken))
        eligible = eligible & allowed
    if not paper:  # [qiao-wang A1:8] untrusted actions do not tie, see the module
        choice = jnp.where(eligible.any(axis=-1, keepdims=True), jnp.where(eligible, table, -1.0), taken)
    pi = TabularPolicy.greedy(choice[None]).probabilities[0]  # [qiao-wang A1:8] ties shared
    return (pi * table).sum(axis=-1), pi
