"""A public feature f in [-1, 1] of observations: how well people fare from there, estimated on the learning group.

It is computed from releases. f lies in [-1, 1] for every observation; outside the world it is 0.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from privrl.mdp.quadratic_features import QuadraticFeatures
from privrl.mdp.types import Trajectory


class AbstractValueFeature(eqx.Module):
    """f, a public function of observations."""

    @abc.abstractmethod
    def of(self, observations: Array) -> Float[Array, "*n"]:
        """f of each observation."""

    @property
    def entries(self) -> int:
        """Roughly how many numbers f of one observation computes; 0 means few."""
        return 0


class MeasuredValueFeature(AbstractValueFeature):
    """f(x) = phi(x)^T w, clipped to [-1, 1], for rows of measurements. Arguments: phi, and w."""

    features: QuadraticFeatures
    weights: Float[Array, " d"]

    def of(self, observations: Float[Array, "*n D"]) -> Float[Array, "*n"]:
        phi = self.features(observations)
        # Cells are cut by this number. In a matrix product, its last bits might depend on the position of a row.
        return _unit((phi * jnp.broadcast_to(self.weights, phi.shape)).sum(axis=-1))

    @property
    def entries(self) -> int:
        return self.features.dim


class SeenEpisode(NamedTuple):
    """One episode, step by step: f, the f of the next state, which steps count, and which step ended the episode.

    If the next state is not recorded or does not exist, `after` repeats the f of the same step.
    """

    f: Float[Array, " H"]
    after: Float[Array, " H"]
    counted: Bool[Array, " H"]
    ended: Bool[Array, " H"]


class TableValueFeature(AbstractValueFeature):
    """A number for each state of a finite world.

    Arguments:
        num_actions, horizon: the size of the world.
        terminal: public states whose entry ends an episode.
        feature: f, one number per state.
    """

    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True)
    feature: Float[Array, " S"]

    def of(self, observations: Int[Array, "*n"]) -> Float[Array, "*n"]:
        inside = (observations >= 0) & (observations < self.feature.shape[0])
        return jnp.where(inside, _unit(self.feature)[jnp.where(inside, observations, 0)], 0.0)

    def see(self, episode: Trajectory) -> SeenEpisode:
        """One episode. It ends on entering a terminal state, or if it stops before the horizon with no next state
        recorded."""
        S = self.feature.shape[0]
        states, actions, after = (
            jnp.asarray(x).astype(int) for x in (episode.states, episode.actions, episode.next_states)
        )
        ends = jnp.zeros(S, bool).at[jnp.asarray(self.terminal, int)].set(True)
        inside = (states >= 0) & (states < S) & (actions >= 0) & (actions < self.num_actions)
        known = (after >= 0) & (after < S)
        stops = (jnp.arange(len(states)) == episode.length - 1) & (episode.length < self.horizon)
        ended = jnp.where(known, ends[jnp.where(known, after, 0)], stops)
        f = jnp.where(inside, self.of(states), 0.0)
        counted = inside & episode.valid & ~ends[jnp.where(inside, states, 0)]
        return SeenEpisode(f, jnp.where(known & ~ended, self.of(after), f), counted, ended)


def _unit(f: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Clip to [-1, 1], with NaN as 0, whatever was released."""
    return jnp.clip(jnp.where(jnp.isnan(f), 0.0, f), -1.0, 1.0)
