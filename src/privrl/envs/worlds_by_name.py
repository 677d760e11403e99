"""Build environments by name, as the command line does."""

import dataclasses
import difflib
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQ2D, LQ4D, Glucose, LQEnv, LQScalar
from privrl.envs.patients.anaemia import Anaemia
from privrl.envs.patients.anticoagulation import Anticoagulation
from privrl.envs.patients.chemotherapy import Chemotherapy
from privrl.envs.patients.glucose_day import GlucoseDay
from privrl.envs.patients.grid_table import GlucoseTable, VitalsTable
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.envs.patients.ventilation import Ventilation
from privrl.envs.patients.vitals import Vitals
from privrl.envs.recorded_world import AbstractRecorded
from privrl.envs.tabular.gymnasium_world import FromGymnasium
from privrl.envs.tabular.hard_mixture import HardMixture
from privrl.envs.tabular.icu_sepsis import ICUSepsis
from privrl.envs.tabular.interval_walk import IntervalWalk
from privrl.envs.tabular.linriver import LinRiver
from privrl.envs.tabular.random_worlds import CombinationLock, RandomWorld
from privrl.envs.tabular.riverswim import DriftingRiver, RiverSwim, RiverSwimInhomogeneous
from privrl.envs.tabular.synthetic import SyntheticLinear
from privrl.envs.zoo.catalogue import WORLDS
from privrl.envs.zoo.endings import Endings
from privrl.envs.zoo.grid_with_holes import GridWithHoles
from privrl.envs.zoo.hidden_severity import HiddenSeverity
from privrl.envs.zoo.in_flight import InFlight

AnyEnv = Env | AbstractRecorded | AbstractPatients | LQEnv

_BUILDERS: dict[str, Callable[..., AnyEnv]] = {
    "synthetic-linear": SyntheticLinear,
    "riverswim": RiverSwim,
    "riverswim-inhomogeneous": RiverSwimInhomogeneous,
    "drifting-river": DriftingRiver,
    "linriver": LinRiver,
    "random-world": RandomWorld,
    "combination-lock": CombinationLock,
    "hard-mixture": HardMixture,
    "icu-sepsis": ICUSepsis,
    "interval-walk": IntervalWalk,
    "lq-scalar": LQScalar,
    "lq-2d": LQ2D,
    "lq-4d": LQ4D,
    "glucose": Glucose,
    "endings": Endings,
    "in-flight": InFlight,
    "grid-with-holes": GridWithHoles,
    "hidden-severity": HiddenSeverity,
    "vitals": Vitals,
    "vitals-table": VitalsTable,
    "glucose-day": GlucoseDay,
    "glucose-table": GlucoseTable,
    "anticoagulation": Anticoagulation,
    "chemotherapy": Chemotherapy,
    "anaemia": Anaemia,
    "ventilation": Ventilation,
}
_GYM = "gym:"
_ANY_TYPE = int | float | bool | str  # tried in this order for an argument without annotation
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def names() -> dict[str, str]:
    """The name of every environment, with a description of one line."""
    lines = {name: inspect.getdoc(build) or "" for name, build in _BUILDERS.items()}
    lines["gym:<id>"] = inspect.getdoc(FromGymnasium) or ""
    return {name: text.splitlines()[0] for name, text in lines.items()}


def make(name: str, *, seed: int = 0, **arguments: object) -> AnyEnv:
    """Build an environment by name.

    The result is an `Env`, or an `LQEnv` for linear systems. For tables that hide something and for real-valued
    measurements, it is an environment that offers what offline learners need.

    Arguments:
        name: one of `names()`, `gym:<id>` for a tabular Gymnasium environment, or a world of
            `privrl.envs.zoo.catalogue`.
        seed: the instance, for worlds that have several.
        **arguments: the world's own arguments; text such as `"6"` is converted to the type of the argument.

    Raises:
        ValueError: if the name or an argument is unknown, or a value is not allowed.
    """
    if name.startswith(_GYM) and name != "gym:<id>":
        return dataclasses.replace(_build(name, FromGymnasium, (name[len(_GYM) :],), arguments), seed=seed)
    if name in WORLDS and name not in _BUILDERS:
        if arguments or seed:
            raise ValueError(f"`{name}` is a fixed world without arguments or a seed. Leave them out.")
        return WORLDS[name].build()
    if name not in _BUILDERS:
        raise ValueError(f"There is no environment `{name}`. {suggest(name, [*names(), *WORLDS])}")
    fixed = {"seed": seed} if "seed" in inspect.signature(_BUILDERS[name]).parameters else {}
    return dataclasses.replace(_build(name, _BUILDERS[name], (), arguments, **fixed), seed=seed)


def _build(
    name: str, build: Callable[..., Any], positional: tuple[str, ...], arguments: dict[str, Any], **fixed: int
) -> Any:
    parameters = inspect.signature(build).parameters
    rest = {p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD}
    own = [p for p in list(parameters)[len(positional) :] if p not in fixed and p not in rest]
    hints = typing.get_type_hints(build)
    converted: dict[str, object] = {}
    for argument, value in arguments.items():
        if argument not in own and not rest:
            raise ValueError(f"Environment `{name}` has no argument `{argument}`. {suggest(argument, own)}")
        converted[argument] = _convert(argument, value, hints[argument] if argument in own else _ANY_TYPE)
    return build(*positional, **converted, **fixed)


def suggest(word: str, known: typing.Iterable[str]) -> str:
    """The allowed words in place of an unknown one, with close matches first."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    listed = ", ".join(f"`{k}`" for k in known) or "none"
    hint = f"Did you mean {' or '.join(f'`{k}`' for k in close)}? " if close else ""
    return f"{hint}There are: {listed}."


def _convert(argument: str, value: object, hint: object) -> object:
    """Convert text from a command line to the annotated type; other values pass unchanged."""
    if not isinstance(value, str):
        return value
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    for option in options:
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if option is types.NoneType and value.lower() in ("none", ""):
            return None
        if option is bool and value.lower() in _BOOLEANS:
            return _BOOLEANS[value.lower()]
        if option in (int, float, str):
            try:
                return option(value)
            except ValueError:
                continue
    wanted = " or ".join(
        " or ".join(map(repr, typing.get_args(o))) if typing.get_origin(o) is Literal else o.__name__ for o in options
    )
    raise ValueError(f"`{argument}` is {value!r}; it must be {wanted}.")
