"""Worlds to learn in: finite worlds with public features, linear systems and simulated patients.

`make(name, seed=..., **arguments)` builds a world by name, and `names()` lists them; most are also functions of their
own.

>>> import privrl
>>> privrl.envs.make("riverswim", states=4).num_states
4
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
    from privrl.envs.zoo.catalogue import CHOOSING, REPORTED

__all__ = [
    "CHOOSING",
    "Env",
    "FromGymnasium",
    "Glucose",
    "ICUSepsis",
    "IntervalWalk",
    "LQEnv",
    "LinRiver",
    "REPORTED",
    "RiverSwim",
    "RiverSwimInhomogeneous",
    "SyntheticLinear",
    "make",
    "names",
]

__getattr__, __dir__ = lazy_names(__name__)
