"""A public feature of observations: how well people fare from there, as the learn group sees it, f in [-1, 1].

It is made of releases. Whatever an observation holds, f lies in [-1, 1]; outside the world it is 0.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from privrl.mdp.quadratic_features import QuadraticFeatures
from privrl.mdp.types import Trajectory


class AbstractValueFeature(eqx.Module):
    """f."""

    @abc.abstractmethod
    def of(self, observations: Array) -> Float[Array, "*n"]:
        """f of each observation."""

    @property
    def entries(self) -> int:
        """About how many numbers are made for one observation; 0: a few."""
        return 0


class MeasuredValueFeature(AbstractValueFeature):
    """f(x) = phi(x)^T w, cut to [-1, 1], for rows of measurements. Arguments: phi, and w."""

    features: QuadraticFeatures
    weights: Float[Array, " d"]

    def of(self, observations: Float[Array, "*n D"]) -> Float[Array, "*n"]:
        phi = self.features(observations)
        # Not a matrix product, whose last bits may depend on where a row stands: cells are cut by this number.
        return _unit((phi * jnp.broadcast_to(self.weights, phi.shape)).sum(axis=-1))

    @property
    def entries(self) -> int:
        return self.features.dim


class SeenEpisode(NamedTuple):
    """One stay, step by step: f, the f of the next state where the stay goes on to one that was recorded (that of the
    same step elsewhere), which steps count, and which one ended the stay."""

    f: Float[Array, " H"]
    after: Float[Array, " H"]
    counted: Bool[Array, " H"]
    ended: Bool[Array, " H"]


class TableValueFeature(AbstractValueFeature):
    """A number for each state of a finite world.

    Arguments:
        num_actions, horizon: the size of the world.
        terminal: public states whose entry ends a stay.
        feature: f, one number per state.
    """

    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True)
    feature: Float[Array, " S"]

    def of(self, observations: Int[Array, "*n"]) -> Float[Array, "*n"]:
        inside = (observations >= 0) & (observations < self.feature.shape[0])
        return jnp.where(inside, _unit(self.feature)[jnp.where(inside, observations, 0)], 0.0)

    def see(self, stay: Trajectory) -> SeenEpisode:
        """One stay. It ends on entering a terminal state, or where it stops before the horizon and no next state was
        recorded."""
        S = self.feature.shape[0]
        states, actions, after = (jnp.asarray(x).astype(int) for x in (stay.states, stay.actions, stay.next_states))
        ends = jnp.zeros(S, bool).at[jnp.asarray(self.terminal, int)].set(True)
        inside = (states >= 0) & (states < S) & (actions >= 0) & (actions < self.num_actions)
        known = (after >= 0) & (after < S)
        stops = (jnp.arange(len(states)) == stay.length - 1) & (stay.length < self.horizon)
        ended = jnp.where(known, ends[jnp.where(known, after, 0)], stops)
        f = jnp.where(inside, self.of(states), 0.0)
        counted = inside & stay.valid & ~ends[jnp.where(inside, states, 0)]
        return SeenEpisode(f, jnp.where(known & ~ended, self.of(after), f), counted, ended)


def _unit(f: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """In [-1, 1], whatever was published."""
    return jnp.clip(jnp.where(jnp.isnan(f), 0.0, f), -1.0, 1.0)
