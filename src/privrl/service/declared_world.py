"""`[world]` of a study file: sizes and public knowledge, or the name of a simulated world."""

from collections.abc import Sequence
from typing import Annotated

import jax.numpy as jnp
import msgspec
import numpy as np
from msgspec import Meta

from privrl.envs.base import Env
from privrl.envs.worlds_by_name import make
from privrl.recipes.recipe import Problem

_Size = Annotated[int, Meta(ge=1, le=1_000_000)]


class DeclaredWorld(msgspec.Struct, frozen=True, kw_only=True):
    """`[world]`: sizes and public knowledge, or the name of a simulated world that has them.

    Attributes:
        env, seed, arguments: a simulated world.
        rewards: known mean rewards in [0, 1], as `rewards[s][a]` or `rewards[h][s][a]`.
        arrival_rewards: known rewards in [0, 1] for entering a state.
        terminal: states in which an episode ends.
    """

    env: str | None = None
    seed: int = 0
    arguments: dict[str, str | int | float | bool] = {}
    states: _Size | None = None
    actions: _Size | None = None
    horizon: _Size | None = None
    rewards: list[list[float | list[float]]] | None = None
    arrival_rewards: list[float] | None = None
    terminal: list[int] = []
    stationary: bool = True

    def problem(self) -> Problem:
        """Describe the task by what is public about it."""
        sizes = (self.states, self.actions, self.horizon)
        if self.env is not None:
            known = (self.rewards, self.arrival_rewards)
            if sizes != (None, None, None) or known != (None, None) or self.terminal:
                raise ValueError("`world` has `env`, which defines sizes and rewards. Remove them, or remove `env`.")
            env = make(self.env, seed=self.seed, **self.arguments)
            if not isinstance(env, Env):
                raise ValueError(f"`world.env` is {self.env!r}. It must be a finite, fully observed world.")
            return Problem.of(env)
        if self.states is None or self.actions is None or self.horizon is None:
            raise ValueError(
                "`world` needs `states`, `actions` and `horizon`, or `env`, the name of a simulated world."
            )
        rewards = self._array("rewards", self.rewards, (2, 3), (self.states, self.actions))
        if rewards is not None and rewards.ndim == 2:
            rewards = rewards[None]
        if rewards is not None and len(rewards) not in (1, self.horizon):
            raise ValueError(f"`world.rewards` has {len(rewards)} steps. Expected 1 or {self.horizon}.")
        arrival = self._array("arrival_rewards", self.arrival_rewards, (1,), (self.states,))
        if not all(0 <= state < self.states for state in self.terminal):
            raise ValueError(f"`world.terminal` must hold states from 0 to {self.states - 1}.")
        return Problem.of_table(
            self.states,
            self.actions,
            self.horizon,
            rewards=None if rewards is None else jnp.asarray(rewards),
            arrival_rewards=None if arrival is None else jnp.asarray(arrival),
            stationary=self.stationary,
            terminal=tuple(self.terminal),
        )

    @staticmethod
    def _array(
        word: str, given: Sequence[object] | None, axes: tuple[int, ...], last: tuple[int, ...]
    ) -> np.ndarray | None:
        if given is None:
            return None
        try:
            found = np.asarray(given, float)
        except (TypeError, ValueError):
            found = np.zeros(())
        if found.ndim not in axes or found.shape[-len(last) :] != last or not ((found >= 0) & (found <= 1)).all():
            raise ValueError(f"`world.{word}` must hold numbers in [0, 1], its last axes of sizes {list(last)}.")
        return found
