"""Worlds to learn in: finite ones with public features, and linear systems; all with exact values.

`make(name, seed=..., **arguments)` builds one by name, `names()` lists them; each is also a function of its own.
"""

from privrl.envs.base import Env
from privrl.envs.gymnasium import FromGymnasium
from privrl.envs.icu_sepsis import ICUSepsis
from privrl.envs.interval_walk import IntervalWalk
from privrl.envs.linriver import LinRiver
from privrl.envs.lq import Glucose, LQEnv
from privrl.envs.registry import make, names
from privrl.envs.riverswim import RiverSwim, RiverSwimInhomogeneous
from privrl.envs.synthetic import SyntheticLinear

__all__ = [
    "Env",
    "FromGymnasium",
    "Glucose",
    "ICUSepsis",
    "IntervalWalk",
    "LQEnv",
    "LinRiver",
    "RiverSwim",
    "RiverSwimInhomogeneous",
    "SyntheticLinear",
    "make",
    "names",
]
