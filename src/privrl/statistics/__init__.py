"""What one person contributes to a sum, clipped to the norm it claims."""

from typing import TYPE_CHECKING

from privrl.lazy import lazy_names

if TYPE_CHECKING:
    from privrl.statistics.counts import RewardSums, TransitionCounts, VisitCounts
    from privrl.statistics.moments import Gram, Targets
    from privrl.statistics.row_statistics import AbstractRowStatistic, clipped_reward, within

__all__ = [
    "AbstractRowStatistic",
    "Gram",
    "RewardSums",
    "Targets",
    "TransitionCounts",
    "VisitCounts",
    "clipped_reward",
    "within",
]

__getattr__, __dir__ = lazy_names(__name__)
