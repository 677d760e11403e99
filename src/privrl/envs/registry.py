"""Environments by name, as the command line knows them."""

import dataclasses
import difflib
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

from privrl.envs.base import Env
from privrl.envs.gymnasium import FromGymnasium
from privrl.envs.hard_mixture import HardMixture
from privrl.envs.icu_sepsis import ICUSepsis
from privrl.envs.interval_walk import IntervalWalk
from privrl.envs.linriver import LinRiver
from privrl.envs.lq import LQ2D, LQ4D, Glucose, LQEnv, LQScalar
from privrl.envs.riverswim import RiverSwim, RiverSwimInhomogeneous
from privrl.envs.synthetic import SyntheticLinear

_BUILDERS: dict[str, Callable[..., Env | LQEnv]] = {
    "synthetic-linear": SyntheticLinear,
    "riverswim": RiverSwim,
    "riverswim-inhomogeneous": RiverSwimInhomogeneous,
    "linriver": LinRiver,
    "hard-mixture": HardMixture,
    "icu-sepsis": ICUSepsis,
    "interval-walk": IntervalWalk,
    "lq-scalar": LQScalar,
    "lq-2d": LQ2D,
    "lq-4d": LQ4D,
    "glucose": Glucose,
}
_GYM = "gym:"
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def names() -> dict[str, str]:
    """Every environment's name and what it is, in one line."""
    lines = {name: inspect.getdoc(build) or "" for name, build in _BUILDERS.items()}
    lines["gym:<id>"] = inspect.getdoc(FromGymnasium) or ""
    return {name: text.splitlines()[0] for name, text in lines.items()}


def make(name: str, *, seed: int = 0, **arguments: Any) -> Any:
    """Builds an environment by name: an `Env`, or an `LQEnv` for linear systems.

    Arguments:
        name: one of `names()`, or `gym:<id>` for a tabular Gymnasium environment.
        seed: the instance, for worlds that have several.
        **arguments: the world's own arguments; text such as `"6"` is converted to what the argument wants.
    """
    if name.startswith(_GYM) and name != "gym:<id>":
        return dataclasses.replace(_build(name, FromGymnasium, (name[len(_GYM) :],), arguments), seed=seed)
    if name not in _BUILDERS:
        raise ValueError(f"There is no environment `{name}`. {_suggest(name, names())}")
    build = _BUILDERS[name]
    if "seed" in inspect.signature(build).parameters:
        return _build(name, build, (), arguments, seed=seed)
    return dataclasses.replace(_build(name, build, (), arguments), seed=seed)


def _build(
    name: str, build: Callable[..., Any], positional: tuple[str, ...], arguments: dict[str, Any], **fixed: int
) -> Any:
    parameters = inspect.signature(build).parameters
    rest = {p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD}
    own = [p for p in list(parameters)[len(positional) :] if p not in fixed and p not in rest]
    hints = typing.get_type_hints(build)
    converted: dict[str, Any] = {}
    for argument, value in arguments.items():
        if argument in own:
            converted[argument] = _convert(argument, value, hints[argument])
        elif rest:
            converted[argument] = _guess(value)
        else:
            raise ValueError(f"Environment `{name}` has no argument `{argument}`. {_suggest(argument, own)}")
    return build(*positional, **converted, **fixed)


def _suggest(word: str, known: typing.Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    listed = ", ".join(f"`{k}`" for k in known) or "none"
    hint = f"Did you mean {' or '.join(f'`{k}`' for k in close)}? " if close else ""
    return f"{hint}There are: {listed}."


def _convert(argument: str, value: Any, hint: Any) -> Any:
    """Text from a command line as the annotated type; values that are not text pass unchanged."""
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


def _guess(value: Any) -> Any:
    """Text for an argument without annotation: a number or a truth value if it reads like one."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for number in (int, float):
        try:
            return number(value)
        except ValueError:
            continue
    return value
