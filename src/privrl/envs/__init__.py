"""Worlds to learn in: finite ones with public features, and linear systems; all with exact values.

`make(name, seed=..., **arguments)` builds one by name, `names()` lists them; each is also a function of its own.
"""

from privrl.envs._base import Env
from privrl.envs._gymnasium import FromGymnasium
from privrl.envs._hard_mixture import HardMixture, hard_mixture
from privrl.envs._icu_sepsis import ICUSepsis
from privrl.envs._interval_walk import IntervalWalk
from privrl.envs._linriver import LinRiver
from privrl.envs._lq import LQ2D, LQ4D, Glucose, LQEnv, LQScalar
from privrl.envs._registry import make, names
from privrl.envs._riverswim import RiverSwim, RiverSwimInhomogeneous
from privrl.envs._synthetic import SyntheticLinear

__all__ = [
    "Env",
    "FromGymnasium",
    "Glucose",
    "HardMixture",
    "ICUSepsis",
    "IntervalWalk",
    "LQ2D",
    "LQ4D",
    "LQEnv",
    "LQScalar",
    "LinRiver",
    "RiverSwim",
    "RiverSwimInhomogeneous",
    "SyntheticLinear",
    "hard_mixture",
    "make",
    "names",
]
