"""privrl's own learners, one line each."""

from privrl.contracts.learner import AbstractLearner
from privrl.learners.control.cautious_lq import CautiousLQ
from privrl.learners.control.ofu_lq import OFULQ
from privrl.learners.functional.functional_reward import FunctionalReward
from privrl.learners.gradient.fqi import FQI
from privrl.learners.gradient.q_learning import QLearning
from privrl.learners.linear.lsvi_ucb import LSVIUCB
from privrl.learners.linear.lsvi_ucb_luyo import LuyoLSVIUCB
from privrl.learners.linear.lsvi_ucb_ngo import NgoLSVIUCB
from privrl.learners.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
from privrl.learners.linear.lsvi_ucb_unweighted import PerEpisodeLSVIUCB
from privrl.learners.linear.pevi import PEVI
from privrl.learners.linear.ucrl_vtr import UCRLVTR
from privrl.learners.linear.vapvi import VAPVI
from privrl.learners.tabular.apvi import APVI
from privrl.learners.tabular.tdfp import TDFP
from privrl.learners.tabular.ucbvi import UCBVI

registry: tuple[type[AbstractLearner], ...] = (
    PEVI,
    VAPVI,
    APVI,
    TDFP,
    FQI,
    QLearning,
    FunctionalReward,
    UCBVI,
    UCRLVTR,
    LSVIUCB,
    LSVIUCBPlusPlus,
    PerEpisodeLSVIUCB,
    LuyoLSVIUCB,
    NgoLSVIUCB,
    CautiousLQ,
    OFULQ,
)
