"""Recipes that learn from a table."""

from typing import Any

from privrl.contracts.learner import AbstractOfflineLearner
from privrl.evaluation.chosen import SHARE, Chosen, enough_to_choose
from privrl.evaluation.renamed import renamed
from privrl.learners.gradient.fqi import FQI
from privrl.learners.gradient.q_learning import QLearning
from privrl.learners.linear.pevi import PEVI
from privrl.learners.linear.vapvi import VAPVI
from privrl.learners.published_noise import apvi_noise, vapvi_noise
from privrl.learners.tabular.apvi import APVI
from privrl.learners.tabular.tap import TAP
from privrl.learners.tabular.tdfp import TDFP
from privrl.recipes.papers import papers
from privrl.recipes.recipe import Algorithm, Problem, Recipe
from privrl.statistics.counts import Counting


def _apvi(problem: Problem, counting: Counting = "pooled", **settings: Any) -> APVI:
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


def _apvi_practical(problem: Problem) -> APVI:
    """First visits, each episode's table clipped to norm 2: most touch far fewer cells than the horizon allows."""
    return _apvi(problem, "first-visit", contribution_norm=2.0 if problem.stationary else None)


def _check_ends(problem: Problem) -> None:
    """Refuses rewards at the end alone if no state is known to end an episode."""
    if problem.rewards_at_end and not problem.terminal:
        raise ValueError(
            "Only the last step of an episode pays (`rewards_at_end`), and no state is known to end one, so no "
            "reward would be seen. Name these states with `terminal`, and the column that holds them with "
            "`next_state`; or leave out `rewards_at_end`."
        )


def _tdfp(problem: Problem) -> TDFP:
    _check_ends(problem)
    sizes = (problem.num_states, problem.num_actions, problem.horizon)
    return TDFP(*sizes, problem.terminal, in_flight_rewards=not problem.rewards_at_end)


def _tap(problem: Problem) -> TAP:
    _check_ends(problem)
    return TAP(problem.num_states, problem.num_actions, problem.horizon, problem.terminal, problem.rewards_at_end)


def _auto(problem: Problem) -> Chosen:
    """What `auto` learns with, by a public rule (measured on the worlds for choosing constants).

    Rewards on the way: `TAP`. Only ends pay: `TDFP` where there are few people for each state and action; `TAP` where
    there are more, but too few people to choose; with many, both, with half of the budget each. `FQI` is left
    out: with 100,000 people it is never the best if anything closes a fifth of the gap, and it would take a share from
    the others.
    """
    learners: tuple[AbstractOfflineLearner, ...] = (_tap(problem),)
    if problem.rewards_at_end:
        people = 0 if problem.num_episodes is None else problem.num_episodes
        each = people / (problem.num_states * problem.num_actions)
        if each < _FEW or (each < _MANY and enough_to_choose(people)):
            learners = (_tdfp(problem),)
        elif each >= _MANY:
            learners = (_tdfp(problem), *learners)
    chooses = enough_to_choose(problem.num_episodes)
    return Chosen(learners, problem.terminal, problem.rewards_at_end, share=SHARE if chooses else None)


_FEW, _MANY = 20, 100  # people for each state and action

_LEAST_SQUARES = {
    "gram": "how often each direction of the features was seen",
    "targets": "what followed each feature, under the values planned so far",
}
_VARIANCES = {
    "spread": "how often each direction of the features was seen, to estimate variances",
    "squares": "the squares of the values that followed each feature",
    "values": "the values that followed each feature",
}
_GRADIENT = {"gradient": "in which direction the estimate should move"}
_PEVI = Algorithm(
    PEVI,
    "offline",
    build=lambda problem: PEVI(problem.features, problem.horizon),
    cites=(papers["jin-yang-wang"], papers["qiao-wang"]),
    releases=_LEAST_SQUARES,
)
_APVI = Algorithm(
    APVI,
    "offline",
    build=_apvi,
    cites=(papers["qiao-wang"],),
    releases={
        "visits": "how often each action was taken in each state",
        "transitions": "which state came next",
        "rewards": "the rewards that were paid",
    },
)
_VAPVI = Algorithm(
    VAPVI,
    "offline",
    build=lambda problem: VAPVI(problem.features, problem.horizon),
    cites=(papers["qiao-wang"],),
    releases=_VARIANCES | _LEAST_SQUARES,
)
_TDFP = Algorithm(
    TDFP,
    "offline",
    build=_tdfp,
    cites=(papers["privrl"],),
    releases={
        "returns": "how well records ended that passed through each state",
        "round": "how often each action was taken, how it ended, and how one value feature moved",
    },
)
_TAP = Algorithm(
    TAP,
    "offline",
    build=_tap,
    cites=(papers["privrl"],),
    releases={
        "visits": "how often each action was taken in each state",
        "visits-again": "the same once more, where it was hardly seen",
        "next-states": "which state came next, and how records ended",
        "next-states-again": "the same once more, where few states can follow",
        "rewards": "the rewards that were paid",
        "returns": "how well records went on that passed through each state",
        "round": "how much better or worse each action turned out than was expected",
        "visits-norms": "how many different actions a record has, to bound its weight",
        "next-states-norms": "the same, for what came next",
        "rewards-norms": "how much a record was paid, to bound its weight",
        "returns-norms": "how many different states a record has, to bound its weight",
        "round-norms": "how far a record was from what was expected, to bound its weight",
    },
)
_AUTO = Algorithm(
    Chosen,
    "offline",
    build=_auto,
    cites=(papers["privrl"],),
    releases={
        **{renamed("TAP", name): said for name, said in _TAP.releases.items()},
        **{renamed("TDFP", name): said for name, said in _TDFP.releases.items()},
        "practice": "how often each action was taken in each state",
        "practice-norms": "how many different actions a record has, to bound its weight",
        "mean-returns": "how well records went on from each state, without a discount",
        "mean-returns-norms": "how many different states a record has, to bound its weight",
        "choice": "which of several candidates other people would fare best with",
    },
)
_FQI = Algorithm(
    FQI,
    "offline",
    build=lambda problem: FQI(problem.num_states, problem.num_actions, problem.horizon),
    cites=(papers["ernst-geurts-wehenkel"],),
    releases={"episodes": "how many episodes there were"} | _GRADIENT,
)
_Q_LEARNING = Algorithm(
    QLearning,
    "offline",
    name="Q-learning",
    build=lambda problem: QLearning(problem.features, problem.horizon, problem.num_episodes, terminal=problem.terminal),
    cites=(papers["watkins-dayan"], papers["abadi-chu-goodfellow"]),
    releases=_GRADIENT,
)
_SAMPLED_FROM = 50_000  # people of which a step of Q-learning draws 500

OFFLINE = (
    Recipe("pevi", _PEVI, "none", "pessimistic least-squares value iteration"),
    Recipe("dp-pevi", _PEVI, "central", "PEVI, span-calibrated Gaussian noise"),
    Recipe("apvi", _APVI, "none", "pessimistic value iteration on counts"),
    Recipe(
        "dp-apvi",
        _APVI,
        "central",
        "APVI on noisy counts, clipped first visits where the world is stationary",
        _apvi_practical,
    ),
    Recipe(
        "dp-apvi@paper",
        _APVI,
        "central",
        "APVI per stage with the paper's noise and constants",
        lambda problem: _apvi(problem, "per-stage", calibration="paper"),
        title="DP-APVI as published",
        published=apvi_noise,
        source="qiao-wang",
    ),
    Recipe("vapvi", _VAPVI, "none", "least-squares value iteration weighted by variances"),
    Recipe("dp-vapvi", _VAPVI, "central", "VAPVI, span-calibrated Gaussian noise"),
    Recipe(
        "dp-vapvi@paper",
        _VAPVI,
        "central",
        "VAPVI with the paper's noise; the certificate shows claimed and exact epsilon",
        lambda problem: VAPVI(problem.features, problem.horizon, calibration="paper"),
        title="DP-VAPVI as published",
        published=vapvi_noise,
        source="qiao-wang",
    ),
    Recipe("tdfp", _TDFP, "none", "planning on endings and the moves of one value feature"),
    Recipe("dp-tdfp", _TDFP, "central", "TDFP, for many states and few people per state"),
    Recipe("tap", _TAP, "none", "visits, next states and TD errors together, near practice"),
    Recipe("dp-tap", _TAP, "central", "TAP, for all kinds of finite worlds; shares of the budget follow what is seen"),
    Recipe("auto", _AUTO, "central", "dp-tdfp, dp-tap, the most frequent action, or practice: many people choose"),
    Recipe("fqi", _FQI, "none", "fitted Q iteration by gradient steps on whole episodes"),
    Recipe("dp-fqi", _FQI, "central", "FQI with one clipped gradient per episode (DP-SGD)"),
    Recipe(
        "q-learning",
        _Q_LEARNING,
        "none",
        "Q-learning by gradient steps on samples of whole episodes",
        episodes=_SAMPLED_FROM,
    ),
    Recipe(
        "dp-sgd-q",
        _Q_LEARNING,
        "central",
        "Q-learning with one clipped gradient per sampled episode (DP-SGD)",
        episodes=_SAMPLED_FROM,
    ),
)
