"""Recipes: a name for a learner, who is trusted, and how the noise is calibrated.

`dp-apvi` is `APVI` under `Central(...)` with practical public constants. A name ending in `@paper` uses the paper's own
noise and constants where these are private at all. The constants were chosen on simulated worlds, never on anybody's
data, and no certificate depends on them.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractLearner
from privrl.contracts.statistic import Adjacency
from privrl.envs.base import Env
from privrl.envs.lq import LQEnv
from privrl.mdp.features import AbstractFeatures, OneHotFeatures
from privrl.privacy.accounting.budget import Budget
from privrl.privacy.accounting.gdp import zcdp_rho
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, Local, NonPrivate, Published
from privrl.privacy.trust.published_local import PublishedLocal
from privrl.privacy.trust.shuffled import Shuffled

Trust = Literal["none", "central", "shuffle", "local"]
Family = Literal["offline", "online", "control", "functional"]


@dataclass(frozen=True)
class Problem:
    """What is public about a task: sizes, and what is known beforehand.

    `rewards` are known mean rewards, `arrival_rewards` known payments for entering a state; with neither, rewards are
    estimated and paid for. `terminal` states end an episode; `rewards_at_end` says that only the last step pays.
    `num_episodes` is how many episodes there are, where that is public and everybody has one.
    """

    num_states: int
    num_actions: int
    horizon: int
    features: AbstractFeatures
    rewards: Float[Array, "G S A"] | None = None
    arrival_rewards: Float[Array, " S"] | None = None
    stationary: bool = True
    terminal: tuple[int, ...] = ()
    rewards_at_end: bool = False
    num_episodes: int | None = None

    @classmethod
    def of(cls, env: Env, num_episodes: int | None = None) -> "Problem":
        """What is public about an environment. Where rewards are paid on arrival, only the payments are known."""
        known = env.rewards if env.arrival is None else None
        sizes = (env.num_states, env.num_actions, env.horizon)
        on_the_way = env.arrival is None or np.delete(np.asarray(env.arrival), list(env.terminal)).any()
        return cls(*sizes, env.features, known, env.arrival, env.stationary, env.terminal, not on_the_way, num_episodes)

    @classmethod
    def of_table(
        cls,
        num_states: int,
        num_actions: int,
        horizon: int,
        terminal: tuple[int, ...] = (),
        rewards_at_end: bool = False,
        num_episodes: int | None = None,
    ) -> "Problem":
        """What is public about a stranger's table: sizes, the states that end an episode, and whether only ends pay."""
        features = OneHotFeatures(num_states, num_actions)
        return cls(
            num_states,
            num_actions,
            horizon,
            features,
            terminal=terminal,
            rewards_at_end=rewards_at_end,
            num_episodes=num_episodes,
        )


@dataclass(frozen=True)
class KnownWorld:
    """A world on the lattice of [0, 1] whose kernel is public, and whose reward is the secret."""

    transition: Float[Array, "S A S"]
    horizon: int

    @classmethod
    def of(cls, env: Env) -> "KnownWorld":
        """The kernel of an environment, which must be the same at every step."""
        if not env.stationary:
            raise ValueError(f"The kernel of `{env.name}` changes from step to step; one kernel for all is needed.")
        return cls(env.mdp.transition[0], env.horizon)


@dataclass(frozen=True)
class Recipe:
    """A named triple; `learner` builds the learner for a `Problem`, for an `LQTask` in the family "control", or for a
    `KnownWorld` in the family "functional".

    `published`, from the declarations and the claimed rho (epsilon and delta for a paper that `claims_epsilon`), is the
    noise of the paper `source` where a recipe has it, and
    `continual` how that paper releases running sums; `printed_scale` is the noise of a paper on local messages.
    A `pure` recipe spends epsilon alone, which is within every (epsilon, delta): a delta is welcome and not needed.
    `episodes` is how many people are simulated unless it is said otherwise.
    """

    name: str
    family: Family
    trust: Trust
    summary: str
    learner: Callable[[Any], AbstractLearner]
    pure: bool = False
    published: Callable[..., Mapping[str, float]] | None = None
    claims_epsilon: bool = False
    printed_scale: Callable[..., Mapping[str, float]] | None = None
    source: str = ""
    continual: Literal["fresh", "tree"] = "fresh"
    episodes: int | None = None

    def build(self, env: Env | LQEnv, num_episodes: int | None = None) -> AbstractLearner:
        """The learner for an environment, from what is public about it (`num_episodes` where that is, too)."""
        if (self.family == "control") != isinstance(env, LQEnv):
            kind = "linear systems" if self.family == "control" else "finite worlds"
            raise ValueError(f"`{self.name}` is for {kind}, and `{env.name}` is none. See `privrl list recipes`.")
        if isinstance(env, LQEnv):
            return self.learner(env.task)
        return self.learner(KnownWorld.of(env) if self.family == "functional" else Problem.of(env, num_episodes))

    def privatizer(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        adjacency: Adjacency = "replace-one",
    ) -> AbstractPrivatizer:
        """The privatizer for a budget; recipes without privacy take none."""
        if self.trust == "none":
            if (epsilon, delta, rho) != (None, None, None):
                raise ValueError(
                    f"`{self.name}` is not private, so it takes no budget. Leave out epsilon, delta and rho, or use a "
                    "private recipe: `privrl list recipes` shows who is trusted in each."
                )
            return NonPrivate(adjacency)
        if self.published is not None:
            return self._as_published(epsilon, delta, rho, adjacency)
        if self.trust == "shuffle":
            return Shuffled(epsilon, delta, rho)
        if self.trust == "central":
            mechanism = "laplace" if epsilon is not None and not delta and rho is None else "gaussian"
            return Central(epsilon, delta, rho, mechanism=mechanism, adjacency=adjacency)  # type: ignore[arg-type]
        if adjacency != "replace-one":
            raise ValueError("Local privacy compares any two records of one person: `adjacency` is always replace-one.")
        if self.printed_scale is not None:
            budget = Budget.of(epsilon=epsilon, delta=delta, rho=rho)
            if budget.kind != "approximate" or epsilon is None or delta is None:
                raise ValueError(f"`{self.name}` is published for epsilon and delta; give `--epsilon` with `--delta`.")
            printed = functools.partial(self.printed_scale, epsilon=epsilon, delta=delta)
            return PublishedLocal(printed, epsilon, delta, self.source)
        return Local(epsilon, None if self.pure and epsilon is not None else delta, rho)

    def _as_published(
        self, epsilon: float | None, delta: float | None, rho: float | None, adjacency: Adjacency
    ) -> Published:
        """The paper's noise for the rho that the paper would spend on this budget."""
        budget = Budget.of(epsilon=epsilon, delta=delta, rho=rho)
        if budget.kind == "pure" or adjacency != "replace-one":
            raise ValueError(
                f"`{self.name}` is published for replace-one and rho; give `--rho`, or `--epsilon` with `--delta`."
            )
        claimed = budget.rho if budget.epsilon is None else zcdp_rho(budget.epsilon, budget.delta)
        assert claimed is not None and self.published is not None
        noise = self.published
        if self.claims_epsilon:
            if budget.epsilon is None:
                raise ValueError(f"`{self.name}` is published for epsilon and delta; give `--epsilon` with `--delta`.")
            asked = budget.epsilon
            return Published(
                functools.partial(noise, epsilon=asked, delta=budget.delta),
                claimed,
                self.source,
                delta=budget.delta,
                continual=self.continual,
                claimed_epsilon=asked,
            )
        return Published(
            functools.partial(noise, rho=claimed),
            claimed,
            self.source,
            delta=budget.delta,
            continual=self.continual,
        )
