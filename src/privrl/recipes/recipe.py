"""Recipes: a name for a learner, who is trusted, and how the noise is calibrated.

`dp-apvi` is `APVI` under `Central(...)` with practical public constants. A name ending in `@paper` uses the paper's own
noise and constants where these are private at all. The constants were chosen on simulated worlds, never on anybody's
data, and no certificate depends on them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractLearner
from privrl.contracts.statistic import Adjacency
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.recorded_world import AbstractRecorded, OfflineEnv
from privrl.envs.worlds_by_name import AnyEnv
from privrl.mdp.features import AbstractFeatures, OneHotFeatures
from privrl.mdp.measurements import Measurement
from privrl.privacy.accounting.gdp import zcdp_rho
from privrl.privacy.accounting.privacy_budget import Budget
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, Local, NonPrivate
from privrl.privacy.trust.published import Published, PublishedNoise
from privrl.privacy.trust.shuffled import Shuffled

Trust = Literal["none", "central", "shuffle", "local"]
Family = Literal["offline", "measured", "online", "control", "functional"]


@dataclass(frozen=True)
class Problem:
    """What is public about a task: sizes, and what is known beforehand.

    `rewards` are known mean rewards, `arrival_rewards` known payments for entering a state; with neither, rewards are
    estimated and paid for. `terminal` states end an episode; `rewards_at_end` says that only the last step pays.
    `num_episodes` is the number of episodes, if it is public and each person has one.
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
    def of(cls, env: OfflineEnv, num_episodes: int | None = None) -> "Problem":
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
        *,
        rewards: Float[Array, "G S A"] | None = None,
        arrival_rewards: Float[Array, " S"] | None = None,
        stationary: bool = True,
        terminal: tuple[int, ...] = (),
        rewards_at_end: bool = False,
        num_episodes: int | None = None,
    ) -> "Problem":
        """What is public about a table: its sizes, and what else is known. States have no features."""
        return cls(
            num_states,
            num_actions,
            horizon,
            OneHotFeatures(num_states, num_actions),
            rewards,
            arrival_rewards,
            stationary,
            terminal,
            rewards_at_end,
            num_episodes,
        )


@dataclass(frozen=True)
class MeasuredProblem:
    """What is public about a table of measurements: its columns with their bounds, sizes, and how it pays.

    `rewards_at_end` says that only the last step of a stay pays; `largest_reward` bounds what one step pays; `products`
    are the pairs of measurements whose product is looked at (`None`: all).
    """

    columns: tuple[Measurement, ...]
    num_actions: int
    horizon: int
    rewards_at_end: bool = False
    largest_reward: float = 1.0
    products: tuple[tuple[str, str], ...] | None = None

    @classmethod
    def of(cls, env: AbstractPatients) -> "MeasuredProblem":
        """What is public about a simulated world."""
        return cls(env.columns, env.num_actions, env.horizon, env.survival > 0, env.largest_reward)


@dataclass(frozen=True)
class KnownWorld:
    """A world on the mesh of [0, 1] whose kernel is public, and whose reward is the secret."""

    transition: Float[Array, "S A S"]
    horizon: int

    @classmethod
    def of(cls, env: Env) -> "KnownWorld":
        """The kernel of an environment, which must be the same at every step."""
        if not env.stationary:
            raise ValueError(f"The kernel of `{env.name}` changes from step to step; one kernel for all is needed.")
        return cls(env.mdp.transition[0], env.horizon)


@dataclass(frozen=True)
class Algorithm:
    """The facts about an algorithm under every trust model; recipes that share it share the entry.

    Arguments:
        learner: its class, by which certificates name it.
        family: what it learns from.
        build: the learner for a `Problem`; for a `MeasuredProblem` in the family "measured", an `LQTask` in the family
            "control", or a `KnownWorld` in the family "functional".
        cites: the papers that it comes from, in BibTeX (`papers` has those that several algorithms share).
        releases: what each of its releases is, as text for reports.
        name: what figures call it, if that is not the name of the class.
    """

    learner: type[AbstractLearner]
    family: Family
    build: Callable[..., AbstractLearner]
    cites: tuple[str, ...]
    releases: Mapping[str, str]
    name: str = ""

    def said_of(self, names: Iterable[str]) -> dict[str, str]:
        """What releases of these names are; those that a learner numbers (`round-1`, `round-2`) are said once."""
        bare = dict.fromkeys(re.sub(r"-\d+$", "", name) for name in names)
        return {name: self.releases[name] for name in bare if name in self.releases}


_KINDS: dict[Family, str] = {"control": "linear systems", "measured": "worlds of real-valued measurements"}


@dataclass(frozen=True)
class Recipe:
    """An algorithm, who is trusted, and what is particular to this use of it.

    `variant` builds the learner where this is another setting than the algorithm's own. `title` is the name in figures,
    `cites` what to cite besides the algorithm's papers.
    `published` is the noise of the paper `source` where a recipe has it, which claims rho (epsilon and delta if it
    `claims_epsilon`), and `continual` how that paper releases running sums.
    A `pure` recipe spends epsilon alone, which is within every (epsilon, delta): a delta is welcome and not needed.
    With `vectors`, people who trust no one send whole vectors instead of symbols.
    `episodes` is how many people are simulated unless it is said otherwise.
    """

    name: str
    algorithm: Algorithm
    trust: Trust
    summary: str
    variant: Callable[..., AbstractLearner] | None = None
    title: str = ""
    cites: tuple[str, ...] = ()
    pure: bool = False
    vectors: bool = False
    published: PublishedNoise | None = None
    claims_epsilon: bool = False
    source: str = ""
    continual: Literal["fresh", "tree"] = "fresh"
    episodes: int | None = None

    @property
    def family(self) -> Family:
        return self.algorithm.family

    @property
    def label(self) -> str:
        """What figures call it: its own title, the algorithm's name without privacy, or the recipe's as ours."""
        algorithm = self.algorithm.name or self.algorithm.learner.__name__
        return self.title or (f"{algorithm}, no privacy" if self.trust == "none" else f"ours: {self.name}")

    @property
    def learner(self) -> Callable[..., AbstractLearner]:
        """Builds the learner for what is public: a `Problem` or what else the family wants, see `Algorithm`."""
        return self.variant or self.algorithm.build

    def build(self, env: AnyEnv, num_episodes: int | None = None) -> AbstractLearner:
        """The learner for an environment, from what is public about it (`num_episodes` where that is, too)."""
        if self.family == "control":
            if isinstance(env, LQEnv):
                return self.learner(env.task)
        elif self.family == "measured":
            if isinstance(env, AbstractPatients):
                return self.learner(MeasuredProblem.of(env))
        elif isinstance(env, Env):
            return self.learner(KnownWorld.of(env) if self.family == "functional" else Problem.of(env, num_episodes))
        elif self.family == "offline" and isinstance(env, AbstractRecorded):
            return self.learner(Problem.of(env, num_episodes))
        kind = _KINDS.get(self.family, "finite worlds")
        if isinstance(env, AbstractRecorded) and self.family not in _KINDS:
            kind = "finite worlds in which nothing is hidden"
        raise ValueError(f"`{self.name}` requires {kind}; `{env.name}` is of another kind. See `privrl list recipes`.")

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
        if self.trust == "local" and adjacency != "replace-one":
            raise ValueError("Local privacy compares any two records of one person: `adjacency` is always replace-one.")
        if self.published is not None:
            return self._as_published(self.published, Budget.of(epsilon=epsilon, delta=delta, rho=rho), adjacency)
        if self.trust == "shuffle":
            return Shuffled(epsilon, delta, rho)
        if self.trust == "central":
            return Central(epsilon, delta, rho, adjacency=adjacency)
        pure = self.pure and epsilon is not None
        return Local(epsilon, None if pure else delta, rho, reports="vectors" if self.vectors else "symbols")

    def _as_published(self, noise: PublishedNoise, budget: Budget, adjacency: Adjacency) -> Published:
        """The paper's noise for this budget; a paper that claims rho would spend `zcdp_rho` on epsilon and delta."""
        if budget.kind == "pure" or adjacency != "replace-one" or (self.claims_epsilon and budget.epsilon is None):
            claim, give = ("epsilon and delta", "") if self.claims_epsilon else ("rho", "`rho`, or ")
            raise ValueError(
                f"`{self.name}` is published for replace-one with {claim}; give {give}`epsilon` with `delta`."
            )
        assert self.trust == "central" or self.trust == "local"
        epsilon, rho = budget.epsilon, budget.rho
        if epsilon is not None and not self.claims_epsilon:
            rho, epsilon = zcdp_rho(epsilon, budget.delta), None
        return Published(noise, self.source, epsilon, budget.delta, rho, self.trust, self.continual)
