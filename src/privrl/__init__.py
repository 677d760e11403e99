"""Reinforcement learning that keeps its users' secrets.

You bring trajectories or an environment, and a privacy budget; you get a policy, and a certificate that says what the
policy can reveal about any one person. Importing this package turns on 64-bit floats in JAX for the whole process:
privacy arithmetic in 32 bits is a bug waiting to happen.
"""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

import jax as _jax

_jax.config.update("jax_enable_x64", True)

from privrl import data, envs, learners, mdp, privacy, statistics  # noqa: E402
from privrl._agent import Agent, Controller  # noqa: E402
from privrl._arrivals import Ticket  # noqa: E402
from privrl._certify import certify  # noqa: E402
from privrl._citations import citation  # noqa: E402
from privrl._client import Client  # noqa: E402
from privrl._fit import fit  # noqa: E402
from privrl._result import Result, Run  # noqa: E402
from privrl._run import run, sweep  # noqa: E402
from privrl._server import Server  # noqa: E402
from privrl._wire import Broadcast, Message, MessageError  # noqa: E402
from privrl.learners import (  # noqa: E402
    APVI,
    FQI,
    LSVIUCB,
    OFULQ,
    PEVI,
    TDFP,
    UCBVI,
    UCRLVTR,
    VAPVI,
    CautiousLQ,
    FunctionalReward,
    LSVIUCBPlusPlus,
    QLearning,
)
from privrl.privacy import Central, Certificate, Local, NonPrivate, ReleaseStore  # noqa: E402

__version__ = "0.1.0"

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
    "Agent",
    "Broadcast",
    "CautiousLQ",
    "Central",
    "Certificate",
    "Client",
    "Controller",
    "FunctionalReward",
    "LSVIUCBPlusPlus",
    "Local",
    "Message",
    "MessageError",
    "NonPrivate",
    "QLearning",
    "ReleaseStore",
    "Result",
    "Run",
    "Server",
    "Ticket",
    "certify",
    "citation",
    "data",
    "envs",
    "fit",
    "learners",
    "mdp",
    "privacy",
    "run",
    "statistics",
    "sweep",
]


def __getattr__(name: str) -> _ModuleType:
    """`privrl.audit` is imported when it is first asked for, so that everybody else's import stays quick."""
    if name == "audit":
        return _import_module("privrl.audit")
    raise AttributeError(f"module 'privrl' has no attribute {name!r}")
