"""The contracts between the packages: statistics, releases, noise distributions, learners and policies."""

from typing import TYPE_CHECKING

from privrl.lazy import lazy_names

if TYPE_CHECKING:
    from privrl.contracts.learner import AbstractOfflineLearner, AbstractOnlineLearner, Ask, Plan, Solution
    from privrl.contracts.noise_distribution import AbstractNoise
    from privrl.contracts.policy import AbstractPolicy
    from privrl.contracts.release import Declared, Release
    from privrl.contracts.statistic import AbstractCategorical, AbstractStatistic, Adjacency

__all__ = [
    "AbstractCategorical",
    "AbstractNoise",
    "AbstractOfflineLearner",
    "AbstractOnlineLearner",
    "AbstractPolicy",
    "AbstractStatistic",
    "Adjacency",
    "Ask",
    "Declared",
    "Plan",
    "Release",
    "Solution",
]

__getattr__, __dir__ = lazy_names(__name__)
