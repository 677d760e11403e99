"""Reinforcement learning that keeps its users' secrets.

You bring trajectories or an environment, and a privacy budget; you get a policy, and a certificate that says what the
policy can reveal about any one person. Importing this package turns on 64-bit floats in JAX for the whole process and
for those that it starts: privacy arithmetic in 32 bits is a bug waiting to happen. JAX itself is imported when a name
that needs it is first used.
"""

import os as _os
import sys as _sys
from typing import TYPE_CHECKING

from privrl.lazy import lazy_names as _lazy_names

# JAX reads the variable when it is imported, which may be long after this. Whichever module of privrl is imported
# first, this file runs before it; and processes that are started from here inherit the variable.
_os.environ["JAX_ENABLE_X64"] = "1"
if "jax" in _sys.modules:
    _sys.modules["jax"].config.update("jax_enable_x64", True)

if TYPE_CHECKING:
    import privrl.contracts as _contracts
    import privrl.data as _data
    import privrl.envs as _envs
    import privrl.learners as _learners
    import privrl.mdp as _mdp
    import privrl.privacy as _privacy
    import privrl.recipes as _recipes
    import privrl.statistics as _statistics
    from privrl.executors.dask import Dask
    from privrl.executors.processes import Processes
    from privrl.learners.continuous.lap import LAP
    from privrl.learners.control.cautious_lq import CautiousLQ
    from privrl.learners.control.ofu_lq import OFULQ
    from privrl.learners.functional.functional_reward import FunctionalReward
    from privrl.learners.gradient.fqi import FQI
    from privrl.learners.gradient.q_learning import QLearning
    from privrl.learners.linear.lsvi_ucb import LSVIUCB
    from privrl.learners.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
    from privrl.learners.linear.pevi import PEVI
    from privrl.learners.linear.ucrl_vtr import UCRLVTR
    from privrl.learners.linear.vapvi import VAPVI
    from privrl.learners.tabular.apvi import APVI
    from privrl.learners.tabular.tdfp import TDFP
    from privrl.learners.tabular.ucbvi import UCBVI
    from privrl.learners.trials.protocol import Arm, Outcome, Protocol
    from privrl.learners.trials.trial import Trial
    from privrl.privacy.accounting.certificate import Certificate
    from privrl.privacy.shared_budget import SharedBudget
    from privrl.privacy.store.release_store import ReleaseStore
    from privrl.privacy.trust.privatizers import Central, Local, NonPrivate
    from privrl.privacy.trust.shuffled import Shuffled
    from privrl.recipes.citations import citation
    from privrl.studies.live.agent import Agent, Controller
    from privrl.studies.live.arrivals import Ticket
    from privrl.studies.live.live_pilot import Pilot
    from privrl.studies.local.client import Client
    from privrl.studies.local.server import Server
    from privrl.studies.local.wire import Broadcast, Message, MessageError
    from privrl.studies.offline.choose import choose
    from privrl.studies.offline.evaluating import evaluate
    from privrl.studies.offline.fitting import fit
    from privrl.studies.open_ended import OpenEnded
    from privrl.studies.results.certification import certify
    from privrl.studies.results.result import Result
    from privrl.studies.results.run_result import Run
    from privrl.studies.simulation.simulating import run, sweep

__version__ = "0.1.0"

__all__ = [
    "APVI",
    "Agent",
    "Arm",
    "Broadcast",
    "CautiousLQ",
    "Central",
    "Certificate",
    "Client",
    "Controller",
    "Dask",
    "FQI",
    "FunctionalReward",
    "LAP",
    "LSVIUCB",
    "LSVIUCBPlusPlus",
    "Local",
    "Message",
    "MessageError",
    "NonPrivate",
    "OFULQ",
    "OpenEnded",
    "Outcome",
    "PEVI",
    "Pilot",
    "Processes",
    "Protocol",
    "QLearning",
    "ReleaseStore",
    "Result",
    "Run",
    "Server",
    "SharedBudget",
    "Shuffled",
    "TDFP",
    "Ticket",
    "Trial",
    "UCBVI",
    "UCRLVTR",
    "VAPVI",
    "certify",
    "choose",
    "citation",
    "evaluate",
    "fit",
    "run",
    "sweep",
]

__getattr__, __dir__ = _lazy_names(__name__)
