"""What one person contributes to a sum, clipped to the norm it claims."""

from privrl.statistics._counts import Counting, RewardSums, TransitionCounts, VisitCounts
from privrl.statistics._differences import Differences, ReturnsToGo
from privrl.statistics._gradients import BellmanGradient, EpisodeCount, ParameterGradient
from privrl.statistics._innovations import FirstStates, Innovations, Surprise
from privrl.statistics._mixtures import MixtureMoments, feature_embedding, feature_norm
from privrl.statistics._moments import Gram, Targets
from privrl.statistics._next_states import FeatureTransitions, StartCounts
from privrl.statistics._regressions import Grams, Regressions, StateVisits, WeightedTransitions
from privrl.statistics._rows import AbstractRowStatistic

__all__ = [
    "AbstractRowStatistic",
    "BellmanGradient",
    "Counting",
    "Differences",
    "EpisodeCount",
    "FeatureTransitions",
    "FirstStates",
    "Gram",
    "Grams",
    "Innovations",
    "MixtureMoments",
    "ParameterGradient",
    "Regressions",
    "ReturnsToGo",
    "RewardSums",
    "StartCounts",
    "StateVisits",
    "Surprise",
    "Targets",
    "TransitionCounts",
    "VisitCounts",
    "WeightedTransitions",
    "feature_embedding",
    "feature_norm",
]
