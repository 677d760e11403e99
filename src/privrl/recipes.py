"""Recipes: a name for a learner, who is trusted, and how the noise is calibrated.

`dp-apvi` is `APVI` under `Central(...)` with practical public constants. A name ending in `@paper` uses the paper's own
noise and constants where these are private at all. The constants were chosen on simulated worlds, never on anybody's
data, and no certificate depends on them.
"""

import difflib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.envs import Env, LQEnv
from privrl.learners import (
    APVI,
    FQI,
    LSVIUCB,
    OFULQ,
    PEVI,
    TDFP,
    UCBVI,
    UCRLVTR,
    VAPVI,
    AbstractLearner,
    CautiousLQ,
    FunctionalReward,
    LSVIUCBPlusPlus,
    QLearning,
    WeightedLSVIUCB,
)
from privrl.learners._published import apvi_noise, lsvi_noise, ofu_lq_noise, ucrl_vtr_noise, vapvi_noise
from privrl.mdp import AbstractFeatures, LQTask, OneHotFeatures
from privrl.privacy import (
    AbstractPrivatizer,
    Adjacency,
    Budget,
    Central,
    Local,
    NonPrivate,
    Published,
    PublishedLocal,
    Shuffled,
    zcdp_rho,
)
from privrl.statistics import Counting

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
                    f"`{self.name}` is not private, so it takes no budget. Leave out epsilon, delta and rho, or use "
                    f"{_private_siblings(self)}."
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


def _private_siblings(recipe: Recipe) -> str:
    private = [r for r in recipes.values() if r.trust != "none"]
    alike = [r for r in private if r.name.endswith(f"-{recipe.name}") or r.learner is recipe.learner]
    names = [f"`{r.name}`" for r in alike]
    return " or ".join(names) or "a private recipe"


def _apvi(problem: Problem, counting: Counting, **settings: Any) -> APVI:
    """Counts keep the step where the kernel depends on it."""
    return APVI(
        problem.num_states,
        problem.num_actions,
        problem.horizon,
        rewards=problem.rewards,
        arrival_rewards=problem.arrival_rewards,
        counting=counting if problem.stationary else "per-stage",
        **settings,
    )


def _apvi_plain(problem: Problem) -> APVI:
    return _apvi(problem, "pooled")


def _apvi_practical(problem: Problem) -> APVI:
    """First visits, each episode's table clipped to norm 2: most touch far fewer cells than the horizon allows."""
    return _apvi(problem, "first-visit", contribution_norm=2.0 if problem.stationary else None)


def _apvi_paper(problem: Problem) -> APVI:
    return _apvi(problem, "per-stage", calibration="paper")


def _vapvi(problem: Problem) -> VAPVI:
    return VAPVI(problem.features, problem.horizon)


def _vapvi_paper(problem: Problem) -> VAPVI:
    return VAPVI(problem.features, problem.horizon, calibration="paper")


def _tdfp(problem: Problem) -> TDFP:
    sizes = (problem.num_states, problem.num_actions, problem.horizon)
    return TDFP(*sizes, problem.terminal, in_flight_rewards=not problem.rewards_at_end)


def _fqi(problem: Problem) -> FQI:
    return FQI(problem.num_states, problem.num_actions, problem.horizon)


def _q_learning(problem: Problem) -> QLearning:
    return QLearning(problem.features, problem.horizon, problem.num_episodes, terminal=problem.terminal)


def _functional_reward(world: KnownWorld) -> FunctionalReward:
    """beta = 4/w: more noise at each point than sqrt3/w, but 40% less power in what is left of it after smoothing."""
    return FunctionalReward(world.transition, world.horizon, half_width=0.1, beta=40.0)


def _pevi(problem: Problem) -> PEVI:
    return PEVI(problem.features, problem.horizon)


def _ucbvi_in_batches(problem: Problem) -> UCBVI:
    """Blocks of at least 500: the smallest one bounds what a shuffler can hide."""
    return _ucbvi(problem, first_block=500)


def _ucbvi(problem: Problem, **settings: Any) -> UCBVI:
    rewards = problem.rewards
    if rewards is None:
        if problem.arrival_rewards is None:
            raise ValueError("`ucbvi` needs known rewards; this problem has none.")
        raise ValueError("`ucbvi` needs rewards of (state, action); this world pays on arrival.")
    return UCBVI(jnp.asarray(rewards), problem.horizon, stationary=problem.stationary, **settings)


def _public(problem: Problem) -> dict[str, Any]:
    """What is publicly known about rewards and endings."""
    known = {"rewards": problem.rewards, "arrival_rewards": problem.arrival_rewards}
    return {**known, "terminal": problem.terminal}


def _lsvi_ucb(problem: Problem) -> LSVIUCB:
    return LSVIUCB(problem.features, problem.horizon, **_public(problem))


def _lsvi_ucb_weighted(problem: Problem) -> WeightedLSVIUCB:
    return WeightedLSVIUCB(problem.features, problem.horizon, **_public(problem))


def _lsvi_ucb_plus_plus(problem: Problem) -> LSVIUCBPlusPlus:
    return LSVIUCBPlusPlus(problem.features, problem.horizon, rewards=problem.rewards, switching="always")


def _lsvi_ucb_plus_plus_paper(problem: Problem) -> LSVIUCBPlusPlus:
    return LSVIUCBPlusPlus.paper(problem.features, problem.horizon, rewards=problem.rewards)


def _luyo_paper(problem: Problem) -> LSVIUCBPlusPlus:
    return LSVIUCBPlusPlus.luyo(problem.features, problem.horizon, rewards=problem.rewards)


def _ngo_paper(problem: Problem) -> LSVIUCBPlusPlus:
    return LSVIUCBPlusPlus.ngo(problem.features, problem.horizon, rewards=problem.rewards)


def _ucrl_vtr(problem: Problem, **settings: Any) -> UCRLVTR:
    if problem.rewards is None:
        raise ValueError("UCRL-VTR needs known rewards of (state, action); this problem has none.")
    settings |= {"stationary": problem.stationary, "terminal": problem.terminal}
    return UCRLVTR(jnp.asarray(problem.rewards), problem.horizon, **settings)


def _ucrl_vtr_paper(problem: Problem) -> UCRLVTR:
    return _ucrl_vtr(problem, calibration="paper")


def _cautious_lq(task: LQTask) -> CautiousLQ:
    return CautiousLQ(task)


def _ofu_lq(task: LQTask) -> OFULQ:
    return OFULQ(task)


def _certainty_equivalence(task: LQTask) -> OFULQ:
    return OFULQ(task, strategy="certainty")


def _ofu_lq_paper(task: LQTask) -> OFULQ:
    return OFULQ.paper(task)


_SAMPLED_FROM = 50_000  # people of which a step of Q-learning draws 500

recipes: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("pevi", "offline", "none", "pessimistic least-squares value iteration", _pevi),
        Recipe("dp-pevi", "offline", "central", "PEVI, span-calibrated Gaussian noise", _pevi),
        Recipe("apvi", "offline", "none", "pessimistic value iteration on counts", _apvi_plain),
        Recipe(
            "dp-apvi",
            "offline",
            "central",
            "APVI on noisy counts, clipped first visits where the world is stationary",
            _apvi_practical,
        ),
        Recipe(
            "dp-apvi@paper",
            "offline",
            "central",
            "APVI per stage with the paper's noise and constants",
            _apvi_paper,
            published=apvi_noise,
            source="qiao-wang",
        ),
        Recipe("vapvi", "offline", "none", "least-squares value iteration weighted by variances", _vapvi),
        Recipe("dp-vapvi", "offline", "central", "VAPVI, span-calibrated Gaussian noise", _vapvi),
        Recipe(
            "dp-vapvi@paper",
            "offline",
            "central",
            "VAPVI with the paper's noise; the certificate shows claimed and exact epsilon",
            _vapvi_paper,
            published=vapvi_noise,
            source="qiao-wang",
        ),
        Recipe("tdfp", "offline", "none", "planning on endings and the moves of one value feature", _tdfp),
        Recipe("dp-tdfp", "offline", "central", "TDFP, for many states and few people per state", _tdfp),
        Recipe("fqi", "offline", "none", "fitted Q iteration by gradient steps on whole episodes", _fqi),
        Recipe("dp-fqi", "offline", "central", "FQI with one clipped gradient per episode (DP-SGD)", _fqi),
        Recipe(
            "q-learning",
            "offline",
            "none",
            "Q-learning by gradient steps on samples of whole episodes",
            _q_learning,
            episodes=_SAMPLED_FROM,
        ),
        Recipe(
            "dp-sgd-q",
            "offline",
            "central",
            "Q-learning with one clipped gradient per sampled episode (DP-SGD)",
            _q_learning,
            episodes=_SAMPLED_FROM,
        ),
        Recipe(
            "functional-reward-q",
            "functional",
            "central",
            "planning on a secret reward function that is released once; protects the function, no person",
            _functional_reward,
        ),
        Recipe("lsvi-ucb", "online", "none", "optimistic least squares on transition moments", _lsvi_ucb),
        Recipe(
            "dp-lsvi-ucb", "online", "central", "LSVI-UCB on continually released moments, joint privacy", _lsvi_ucb
        ),
        Recipe("lsvi-ucb++", "online", "none", "LSVI-UCB++, weighted by variances, as published", _lsvi_ucb_plus_plus),
        Recipe(
            "dp-lsvi-ucb++",
            "online",
            "central",
            "LSVI-UCB on continually released moments with the variance weights of LSVI-UCB++",
            _lsvi_ucb_weighted,
        ),
        Recipe(
            "dp-lsvi-ucb++@paper",
            "online",
            "central",
            "LSVI-UCB++ with the paper's noise made fresh: everything released after every user",
            _lsvi_ucb_plus_plus_paper,
            published=lsvi_noise,
            source="sahu",
        ),
        Recipe(
            "dp-lsvi-ucb-luyo@paper",
            "online",
            "central",
            "private LSVI-UCB in static batches (Luyo et al. 2021), reconstructed; batches as for epsilon 1",
            _luyo_paper,
            published=lsvi_noise,
            source="luyo et al., reconstructed",
            continual="tree",
        ),
        Recipe(
            "dp-lsvi-ucb-ngo@paper",
            "online",
            "central",
            "private LSVI-UCB in adaptive batches (Ngo et al. 2022), reconstructed",
            _ngo_paper,
            published=lsvi_noise,
            source="ngo et al., reconstructed",
            continual="tree",
        ),
        Recipe("ucbvi", "online", "none", "optimistic value iteration on counts", _ucbvi),
        Recipe("dp-ucbvi", "online", "central", "UCBVI on continually released counts, joint privacy", _ucbvi),
        Recipe("ldp-ucbvi", "online", "local", "UCBVI on randomised responses, nobody is trusted", _ucbvi, pure=True),
        Recipe(
            "shuffle-ucbvi",
            "online",
            "shuffle",
            "UCBVI on answers that a trusted shuffler mixes, at least 500 people at a time",
            _ucbvi_in_batches,
        ),
        Recipe("ucrl-vtr", "online", "none", "optimistic value-targeted regression in mixtures of kernels", _ucrl_vtr),
        Recipe("ldp-ucrl-vtr", "online", "local", "UCRL-VTR with tight local noise; does not learn", _ucrl_vtr),
        Recipe(
            "ldp-ucrl-vtr@paper",
            "online",
            "local",
            "UCRL-VTR with the printed local noise; does not learn",
            _ucrl_vtr_paper,
            printed_scale=ucrl_vtr_noise,
            source="liao-he-gu",
        ),
        Recipe("cautious-lq", "control", "none", "control from surprises, with a gate against harm", _cautious_lq),
        Recipe("private-lq", "control", "central", "CautiousLQ on noisy surprises, joint privacy", _cautious_lq),
        Recipe("ofu-lq", "control", "none", "optimistic control of an unknown linear system", _ofu_lq),
        Recipe(
            "certainty-equivalence",
            "control",
            "none",
            "the gains of the estimate, with exploration",
            _certainty_equivalence,
        ),
        Recipe("private-ofu-lq", "control", "central", "OFULQ on continually released sums, joint privacy", _ofu_lq),
        Recipe(
            "private-ofu-lq@paper",
            "control",
            "central",
            "OFULQ with the printed noise and constants: the zero controller for tens of thousands of people",
            _ofu_lq_paper,
            published=ofu_lq_noise,
            claims_epsilon=True,
            source="chowdhury-zhou-shroff",
            continual="tree",
        ),
    )
}


def get(name: str) -> Recipe:
    """A recipe by name; a clear error with close matches otherwise."""
    if name not in recipes:
        close = difflib.get_close_matches(name, recipes, n=3)
        hint = f"Did you mean {' or '.join(f'`{c}`' for c in close)}? " if close else ""
        raise ValueError(f"There is no recipe `{name}`. {hint}There are: {', '.join(recipes)}.")
    return recipes[name]
