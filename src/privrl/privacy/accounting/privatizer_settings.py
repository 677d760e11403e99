"""Writes a privatizer's settings as plain JSON, and rebuilds the privatizer, so that certificates can be checked.

A privatizer with a function (the noise of a paper) is written with the function's name and arguments. The caller who
rebuilds it lists the functions that it may use.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, Local, NonPrivate
from privrl.privacy.trust.published import Published, PublishedNoise
from privrl.privacy.trust.shuffled import Shuffled

_OWN: dict[str, type] = {f"privrl.{cls.__name__}": cls for cls in (NonPrivate, Central, Local, Shuffled, Published)}


class UnknownPrivatizerError(ValueError):
    """The settings name a privatizer or a noise function that privrl does not have."""


def privatizer_settings(privatizer: AbstractPrivatizer) -> dict[str, object]:
    """The class of a privatizer and all its fields."""
    cls = type(privatizer)
    short = f"privrl.{cls.__name__}"
    name = short if _OWN.get(short) is cls else f"{cls.__module__}.{cls.__qualname__}"
    if not hasattr(cls, "__dataclass_fields__"):
        return {"class": name}
    return {"class": name, **{f.name: _plain(getattr(privatizer, f.name)) for f in fields(privatizer)}}  # type: ignore[arg-type]


def rebuild_privatizer(settings: Mapping[str, Any], functions: Mapping[str, PublishedNoise]) -> AbstractPrivatizer:
    """Rebuilds the privatizer with these settings, which may name only the given `functions`."""
    name = str(settings["class"])
    if name not in _OWN:
        raise UnknownPrivatizerError(f"`{name}` is not one of privrl's own privatizers.")
    cls = _OWN[name]
    given = {key: value for key, value in settings.items() if key != "class"}
    if set(given) != {f.name for f in fields(cls)}:
        raise ValueError(
            f"The recorded settings of `{name}` are {sorted(given)}; it has {sorted(f.name for f in fields(cls))}."
        )
    fixed = {f.name for f in fields(cls) if not f.init}
    privatizer = cls(**{key: _value(value, functions) for key, value in given.items() if key not in fixed})
    for key in fixed:
        if getattr(privatizer, key) != given[key]:
            raise ValueError(f"`{key}` of `{name}` is recorded as {given[key]!r}; it is {getattr(privatizer, key)!r}.")
    return privatizer


def function_name(function: Callable[..., object]) -> str:
    """The name of a function in settings."""
    return f"{function.__module__}.{function.__qualname__}"


def _plain(value: Any) -> object:
    if isinstance(value, functools.partial):
        return {"function": function_name(value.func), "arguments": {k: _plain(v) for k, v in value.keywords.items()}}
    if callable(value):
        return {"function": function_name(value), "arguments": {}}
    if value is None or isinstance(value, (str, bool, int)):
        return value
    return float(value)


def _value(content: Any, functions: Mapping[str, PublishedNoise]) -> Any:
    if not isinstance(content, Mapping):
        return content
    name = str(content["function"])
    if name not in functions:
        raise UnknownPrivatizerError(f"`{name}` is not a noise function of privrl.")
    return functools.partial(functions[name], **content["arguments"])
