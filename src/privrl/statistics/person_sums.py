"""What one person, with all their stays, adds to sums over features of measurements; scaled to a released clip level.

phi_t in R^d are the features of step t (`mdp/quadratic_features.py`), a_t its action, over all steps of all stays. A
step whose action does not exist is left out, and so is what comes after the end of a stay.

**Formal guarantee** (for all records, whatever they say). A person's vector x is multiplied by C/max(C, ||x||), with C
the `level`, so ||x|| <= C afterwards; a vector that is not finite becomes 0. No bound on phi is used.

- `ActionGrams`: x = (sum_t phi_t phi_t^T 1[a_t = a])_a. For two people, whatever the signs of phi,
  <x, y> = sum_a sum_{t,t'} (phi_t . psi_t')^2 1[a_t = b_t' = a] >= 0, and multiplying by positive numbers keeps that:
  ||x - y||^2 = ||x||^2 + ||y||^2 - 2 <x, y> <= 2 C^2, so sqrt(2) C under replace-one. Released are the entries on and
  above the diagonal, those above it times sqrt(2): a vector whose L2 norm is the Frobenius norm of the matrices, so
  white noise of scale sigma on it is noise of variance sigma^2 on the diagonal and sigma^2/2 off it.
- `FeatureReturns`, `FeatureErrors`: entries have signs, so ||x - y|| <= ||x|| + ||y|| <= 2 C.

Under add-remove all cost C. All bounds are met. C, the features' centres and half-widths, and the function F of
`FeatureErrors` come from earlier releases, so they are public. Missing values, values out of range and early ends only
change phi and the set of steps, of which nothing is assumed. A person with several stays is one vector, however many
those are. There is no L1 bound.
"""

import abc
import math
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.anchored import LayeredValue
from privrl.mdp.measurements import ENDED
from privrl.mdp.quadratic_features import QuadraticFeatures
from privrl.mdp.rules import Rules
from privrl.mdp.types import Trajectory
from privrl.statistics.setting_checks import SMALLEST, check_array, check_positive, check_sizes

_COMPARED = 2**16  # pairs of steps of one person that are compared at once


class Rewarding(eqx.Module):
    """How rewards of a stay are read.

    With `at_end`, only the last step pays, and every stay has ended. Otherwise rewards are discounted by gamma =
    `discount`, in units of 1 - gamma so that values lie in [0, 1], and a stay has ended if its last next state is
    `ENDED`; if not, it was cut. Rewards are divided by the public `largest` one.
    """

    at_end: bool = eqx.field(static=True)
    discount: float = eqx.field(static=True, default=0.9)
    largest: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        check_positive(largest=self.largest)
        if not 0.0 <= self.discount < 1.0:
            raise ValueError(f"`discount` is {self.discount}; it must be at least 0 and below 1.")

    @property
    def gamma(self) -> float:
        return 1.0 if self.at_end else self.discount

    @property
    def reward_scale(self) -> float:
        return 1.0 if self.at_end else 1.0 - self.discount

    def rewards(self, stay: Trajectory) -> Float[Array, " H"]:
        """Each in [0, 1], and 0 after the end."""
        r = jnp.asarray(stay.rewards) / self.largest
        return jnp.where(stay.valid & ~jnp.isnan(r), jnp.clip(r, 0.0, 1.0), 0.0)

    def ended(self, stay: Trajectory) -> Bool[Array, " H"]:
        """Which step ended the stay, if any did."""
        last = jnp.arange(stay.rewards.shape[-1]) == stay.length - 1
        return last & (self.at_end | (jnp.asarray(stay.next_states)[:, 0] == ENDED))

    def to_go(self, stay: Trajectory) -> Float[Array, " H"]:
        """y_t in [0, 1]: the return from step t on; where a stay was cut, the discounted mean of what was seen."""
        paid = later(self.rewards(stay), self.gamma)
        if self.at_end:
            return jnp.clip(paid, 0.0, 1.0)
        seen = jnp.maximum(later(stay.valid.astype(float), self.gamma), 1.0)
        return jnp.clip(paid * jnp.where(self.ended(stay).any(), self.reward_scale, 1.0 / seen), 0.0, 1.0)


def later(x: Float[Array, " H"], factor: float) -> Float[Array, " H"]:
    """y_t = sum_{k >= t} factor^(k - t) x_k, each a sum of its own, wherever a stay stands in a batch."""
    H = x.shape[0]
    ahead = np.arange(H)[None, :] - np.arange(H)[:, None]
    return (np.where(ahead >= 0, float(factor) ** np.maximum(ahead, 0), 0.0) * x[None]).sum(axis=1)


class AbstractPersonSum(AbstractStatistic):
    """One person's vector, scaled down to norm `level`.

    Arguments:
        features: phi.
        num_actions: A.
        level: C, from an earlier release.
    """

    features: QuadraticFeatures
    num_actions: int = eqx.field(static=True)
    level: Float[Array, ""]
    symmetric: bool = eqx.field(static=True, default=False, init=False)
    signed: ClassVar[bool] = True
    per_person: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_sizes(num_actions=self.num_actions)
        check_array("level", self.level, (), low=SMALLEST)

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, working_entries=lambda steps: steps * self.num_actions * self.features.dim)

    @abc.abstractmethod
    def vector(self, person: Trajectory) -> Float[Array, "..."]:
        """x, before it is scaled."""

    def norm(self, person: Trajectory) -> Float[Array, ""]:
        """||x||."""
        return jnp.sqrt((self.vector(person) ** 2).sum())

    def contribution(self, record: Trajectory, query: object) -> Float[Array, "..."]:
        del query
        norm = self.norm(record)
        return self.vector(record) * jnp.where(jnp.isfinite(norm), self.level / jnp.maximum(norm, self.level), 0.0)

    def l2(self, adjacency: Adjacency) -> float:
        apart = 2.0 if self.signed else math.sqrt(2.0)
        return float(self.level) * (apart if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        raise ValueError(f"`{type(self).__name__}` is released with Gaussian noise; use `mechanism='gaussian'`.")

    def _steps(self, person: Trajectory) -> tuple[Float[Array, "E H d"], Float[Array, "E H A"]]:
        """The features of every step, and a one-hot of its action; 0 where there is no step or no such action."""
        actions = jnp.where(person.valid, jnp.asarray(person.actions), -1)
        return self.features(jnp.asarray(person.states)), jax.nn.one_hot(actions, self.num_actions, dtype=float)


class ActionGrams(AbstractPersonSum):
    """(sum_t phi_t phi_t^T 1[a_t = a])_a, the upper triangles alone: `[A, d (d + 1)/2]`."""

    signed: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, ...]:
        d = self.features.dim
        return self.num_actions, d * (d + 1) // 2

    @property
    def hints(self) -> SumHints:
        hints, matrices = super().hints, self.num_actions * self.features.dim**2

        def entries(steps: int) -> int:
            return max(hints.working_entries(steps), matrices, min(steps, _rows_at_once(steps)) * steps)

        return replace(hints, working_entries=entries)

    def vector(self, person: Trajectory) -> Float[Array, "A m"]:
        phi, taken = (x.reshape(-1, x.shape[-1]) for x in self._steps(person))
        d = phi.shape[-1]
        whole = jnp.einsum("ta,ti,tj->aij", taken, phi, phi, optimize=[(0, 1), (0, 1)])
        i, j = np.triu_indices(d)
        return whole[:, i, j] * _isometry(d)[None]

    def norm(self, person: Trajectory) -> Float[Array, ""]:
        """||x||^2 = sum_{t,t'} 1[a_t = a_t'] (phi_t . phi_t')^2, without a matrix of d^2 entries; over blocks of t."""
        phi, taken = (x.reshape(-1, x.shape[-1]) for x in self._steps(person))
        steps, rows = len(phi), _rows_at_once(len(phi))

        def of_rows(block: tuple[Float[Array, "R d"], Float[Array, "R A"]]) -> Float[Array, ""]:
            return ((block[1] @ taken.T) * (block[0] @ phi.T) ** 2).sum()

        if steps <= rows:
            return jnp.sqrt(of_rows((phi, taken)))
        blocks = (jnp.pad(x, ((0, -steps % rows), (0, 0))).reshape(-1, rows, x.shape[-1]) for x in (phi, taken))
        return jnp.sqrt(jax.lax.map(of_rows, tuple(blocks)).sum())

    def matrices(self, released: Float[Array | np.ndarray, "A m"]) -> Float[np.ndarray, "A d d"]:
        """Symmetric matrices from their released upper triangles."""
        i, j = np.triu_indices(self.features.dim)
        whole = np.empty((self.num_actions, self.features.dim, self.features.dim))
        whole[:, i, j] = whole[:, j, i] = np.asarray(released) / _isometry(self.features.dim)
        return whole


def _rows_at_once(steps: int) -> int:
    """How many steps are compared with all others at once."""
    return max(1, _COMPARED // steps)


def _isometry(dim: int) -> Float[np.ndarray, " m"]:
    """What makes the L2 norm of an upper triangle the Frobenius norm of the matrix."""
    i, j = np.triu_indices(dim)
    return np.where(i == j, 1.0, math.sqrt(2.0))


class FeatureReturns(AbstractPersonSum):
    """sum_t phi_t (y_t - 1/2), with y_t in [0, 1] the return from step t on: `[d]`."""

    rewarding: Rewarding

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features.dim,)

    def vector(self, person: Trajectory) -> Float[Array, " d"]:
        y = jax.vmap(self.rewarding.to_go)(person)
        return jnp.einsum("eh,ehd->d", jnp.where(person.valid, y - 0.5, 0.0), self.features(jnp.asarray(person.states)))


class FeatureErrors(AbstractPersonSum):
    """TD errors with a trace (sum_t phi_t e_t 1[a_t = a])_a: `[A, d]`.

    delta_t = unit r_t + gamma F(s_{t+1}) - F(s_t), without F(s_{t+1}) where the stay ended. The last step of a stay
    that did not end is left out: its delta is 0. Then e_t = delta_t + gamma trace e_{t+1}, and 0 after the last step.

    Arguments:
        values: F, from earlier releases, in [0, 1].
        trace: in [0, 1], how far what comes later counts: 0 leaves delta, 1 gives return minus F.
        rules: public rules, which F keeps in its choices; not those that depend on the previous action.
    """

    rewarding: Rewarding
    values: LayeredValue
    trace: float = eqx.field(static=True, default=0.0)
    rules: Rules = eqx.field(static=True, default=Rules())

    def __check_init__(self) -> None:
        if not 0.0 <= self.trace <= 1.0:
            raise ValueError(f"`trace` is {self.trace}; it must lie in [0, 1].")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.num_actions, self.features.dim

    def vector(self, person: Trajectory) -> Float[Array, "A d"]:
        phi, taken = self._steps(person)
        names = [column.name for column in self.features.columns]
        allowed = self.rules.mask(names, jnp.asarray(person.states)) if self.rules else None
        errors = jax.vmap(self._errors)(person, self.values(phi, allowed))
        return jnp.einsum("eha,ehd->ad", taken * errors[..., None], phi)

    def _errors(self, stay: Trajectory, F: Float[Array, " H"]) -> Float[Array, " H"]:
        last: Int[Array, ""] = jnp.asarray(stay.length) - 1
        goes_on = jnp.arange(F.shape[0]) < last
        ended = self.rewarding.ended(stay)
        after = jnp.where(goes_on, jnp.append(F[1:], 0.0), 0.0)
        delta = self.rewarding.reward_scale * self.rewarding.rewards(stay) + self.rewarding.gamma * after - F
        return later(jnp.where(goes_on | ended, delta, 0.0), self.rewarding.gamma * self.trace)
