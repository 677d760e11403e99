"""Worlds to learn in: finite ones with public features, and linear systems; all with exact values.

`make(name, seed=..., **arguments)` builds one by name, `names()` lists them; each is also a function of its own.
"""

from typing import TYPE_CHECKING

from privrl.lazy import lazy_names

if TYPE_CHECKING:
    from privrl.envs.base import Env
    from privrl.envs.lq_worlds import Glucose, LQEnv
    from privrl.envs.tabular.gymnasium_world import FromGymnasium
    from privrl.envs.tabular.icu_sepsis import ICUSepsis
    from privrl.envs.tabular.interval_walk import IntervalWalk
    from privrl.envs.tabular.linriver import LinRiver
    from privrl.envs.tabular.riverswim import RiverSwim, RiverSwimInhomogeneous
    from privrl.envs.tabular.synthetic import SyntheticLinear
    from privrl.envs.worlds_by_name import make, names

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

__getattr__, __dir__ = lazy_names(__name__)
