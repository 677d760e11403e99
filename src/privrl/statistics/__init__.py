"""What one person contributes to a sum, clipped to the norm it claims."""

from privrl.statistics._counts import Counting, RewardSums, TransitionCounts, VisitCounts
from privrl.statistics._differences import Differences, ReturnsToGo
from privrl.statistics._gradients import BellmanGradient, EpisodeCount
from privrl.statistics._moments import Gram, Targets
from privrl.statistics._rows import AbstractRowStatistic

__all__ = [
    "AbstractRowStatistic",
    "BellmanGradient",
    "Counting",
    "Differences",
    "EpisodeCount",
    "Gram",
    "ReturnsToGo",
    "RewardSums",
    "Targets",
    "TransitionCounts",
    "VisitCounts",
]
