"""Recipes that learn from a table."""

from typing import Any

from privrl.learners.gradient.fqi import FQI
from privrl.learners.gradient.q_learning import QLearning
from privrl.learners.linear.pevi import PEVI
from privrl.learners.linear.vapvi import VAPVI
from privrl.learners.published import apvi_noise, vapvi_noise
from privrl.learners.tabular.apvi import APVI
from privrl.learners.tabular.tdfp import TDFP
from privrl.recipes.recipe import Problem, Recipe
from privrl.statistics.counts import Counting


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


def _pevi(problem: Problem) -> PEVI:
    return PEVI(problem.features, problem.horizon)


_SAMPLED_FROM = 50_000  # people of which a step of Q-learning draws 500

OFFLINE = (
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
)
