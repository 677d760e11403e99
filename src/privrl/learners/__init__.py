"""The learners: one file per algorithm, private and not, and the registry that lists them."""

from privrl.learners._apvi import APVI
from privrl.learners._base import AbstractLearner, AbstractOfflineLearner, AbstractOnlineLearner, Ask, Plan
from privrl.learners._consistency import consistent_counts
from privrl.learners._fqi import FQI
from privrl.learners._pevi import PEVI
from privrl.learners._tdfp import TDFP
from privrl.learners._ucbvi import UCBVI
from privrl.learners._vapvi import VAPVI

registry: tuple[type[AbstractLearner], ...] = (PEVI, VAPVI, APVI, TDFP, FQI, UCBVI)

__all__ = [
    "APVI",
    "FQI",
    "PEVI",
    "TDFP",
    "UCBVI",
    "VAPVI",
    "AbstractLearner",
    "AbstractOfflineLearner",
    "AbstractOnlineLearner",
    "Ask",
    "Plan",
    "consistent_counts",
    "registry",
]
