"""A learner from its recorded settings, so that what it declared can be derived again without its author.

Only privrl's own classes, and those of modules that the user of this process trusts (`trust_classes`), are built, and
nothing is run that the settings name. An array that was written down as a hash has a shape and no numbers: it becomes a
`jax.ShapeDtypeStruct`, on which every computation fails. A declaration that depended on its numbers can therefore not
be derived, and never comes out wrong.
"""

import base64
import binascii
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from privrl.contracts.learner import AbstractAnalysis
from privrl.studies.learner_settings import own, trusted

_PEOPLE = {"people", "num_episodes", "paper_users", "first_block", "block"}
_MAX_SIZE = 2**20
_MAX_TABLE = 2**28  # entries of states, actions and steps


class NotOursError(ValueError):
    """Nothing can be derived from these settings: the class is not privrl's own, or its numbers were not kept."""


def learner_of(settings: Mapping[str, object]) -> AbstractAnalysis:
    """The learner with these settings, as `settings_of` wrote them; large arrays have a shape and no numbers.

    Settings that the class itself refuses are refused here too, except that checks of a class with an array without
    numbers cannot be made.
    """
    learner = _value(settings)
    if not isinstance(learner, AbstractAnalysis):
        raise ValueError("The recorded settings are not those of a learner.")
    return learner


def is_complete(learner: AbstractAnalysis) -> bool:
    """Whether all its arrays have numbers."""
    return not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(learner))


def _value(content: object) -> object:
    if isinstance(content, list):
        return tuple(_value(one) for one in content)
    if not isinstance(content, Mapping):
        return content
    if "class" in content:
        return _module(str(content["class"]), content["settings"])
    if "float" in content:
        return float(content["float"])
    if "mapping" in content:
        return {_value(k): _value(v) for k, v in content["mapping"]}
    return _array(content)


def _module(name: str, settings: Mapping[str, object]) -> object:
    cls = own.get(name) or trusted.get(name)
    if cls is None:
        raise NotOursError(
            f"`{name}` is not one of privrl's own classes. If you trust the code of its module, give the module with "
            "`--trust`."
        )
    names = {f.name for f in dataclasses.fields(cls)}
    if set(settings) != names:
        raise ValueError(f"The settings of `{name}` are {sorted(settings)}; it has {sorted(names)}.")
    fields = {field: _value(value) for field, value in settings.items()}
    _check_sizes(name, fields)
    if not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(fields)):
        return cls(**fields)
    module: object = object.__new__(cls)  # the class's own checks need the numbers
    for field, value in fields.items():
        object.__setattr__(module, field, value)
    return module


def _check_sizes(name: str, fields: Mapping[str, Any]) -> None:
    """Refuses sizes for which a learner would allocate too much memory; numbers of people may be larger."""
    sizes = {field: value for field, value in fields.items() if type(value) is int and field not in _PEOPLE}
    table = math.prod(max(fields[field], 1) for field in ("num_states", "num_actions", "horizon") if field in sizes)
    if any(abs(size) > _MAX_SIZE for size in sizes.values()) or table > _MAX_TABLE:
        raise NotOursError(f"The recorded sizes of `{name}` are too large to derive anything from them.")


def _array(content: Mapping[str, Any]) -> Any:
    shape, dtype = tuple(content["shape"]), np.dtype(content["dtype"])
    if "array" in content:
        return jnp.asarray(np.array([_value(one) for one in content["array"]], dtype).reshape(shape))
    if "base64" in content:
        try:
            data = base64.b64decode(content["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError("A recorded array is damaged.") from error
        return jnp.asarray(np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape).astype(dtype))
    return jax.ShapeDtypeStruct(shape, dtype)
