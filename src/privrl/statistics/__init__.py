"""What one person contributes to a sum, clipped to the norm it claims."""

from privrl.statistics.counts import RewardSums, TransitionCounts, VisitCounts
from privrl.statistics.moments import Gram, Targets
from privrl.statistics.row_statistics import AbstractRowStatistic

__all__ = [
    "AbstractRowStatistic",
    "Gram",
    "RewardSums",
    "Targets",
    "TransitionCounts",
    "VisitCounts",
]
