"""The learners: one file per algorithm, private and not, and the registry that lists them."""

from privrl.learners._apvi import APVI
from privrl.learners._base import AbstractLearner, AbstractOfflineLearner, AbstractOnlineLearner, Ask, Plan
from privrl.learners._cautious_lq import CautiousLQ
from privrl.learners._consistency import consistent_counts
from privrl.learners._fqi import FQI
from privrl.learners._functional_reward import FunctionalReward
from privrl.learners._lsvi_ucb import LSVIUCB
from privrl.learners._lsvi_ucb_plus_plus import LSVIUCBPlusPlus
from privrl.learners._lsvi_ucb_weighted import WeightedLSVIUCB
from privrl.learners._ofu_lq import OFULQ
from privrl.learners._pevi import PEVI
from privrl.learners._q_learning import QLearning
from privrl.learners._registry import registry
from privrl.learners._settings import settings_of
from privrl.learners._tdfp import TDFP
from privrl.learners._ucbvi import UCBVI
from privrl.learners._ucrl_vtr import UCRLVTR
from privrl.learners._vapvi import VAPVI

__all__ = [
    "APVI",
    "FQI",
    "LSVIUCB",
    "OFULQ",
    "PEVI",
    "TDFP",
    "UCBVI",
    "UCRLVTR",
    "VAPVI",
    "AbstractLearner",
    "AbstractOfflineLearner",
    "AbstractOnlineLearner",
    "Ask",
    "CautiousLQ",
    "FunctionalReward",
    "LSVIUCBPlusPlus",
    "Plan",
    "QLearning",
    "WeightedLSVIUCB",
    "consistent_counts",
    "registry",
    "settings_of",
]
