"""The interface of policies: a policy consists of arrays, by which it is saved and certified."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

CLASS = "class"
"""The name of the array that holds the name of a registered class."""


class AbstractPolicy(eqx.Module):
    """A rule that chooses actions."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that the policy consists of, by name. Results save them, and certificates name their hash."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)} | class_array(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "AbstractPolicy":
        """Read the output of `arrays`."""
        return cls(**{field.name: jnp.asarray(arrays[field.name]) for field in fields(cls) if field.name in arrays})


_Kind = TypeVar("_Kind", bound=type[AbstractPolicy])
_registered: dict[str, type[AbstractPolicy]] = {}


def register_policy(kind: _Kind) -> _Kind:
    """Lets results save and load policies of this class. Use it as a decorator.

    A policy is saved by the name of its class and its arrays, never as code: import the module that registers the class
    before you load one. All fields must be arrays or numbers, unless the class has `arrays` and `from_arrays` of its
    own. Fields that a subclass of `TabularPolicy` or `MeasuredPolicy` adds are saved with those that it inherits.

    Raises:
        TypeError: the class is not a subclass of `AbstractPolicy`.

    >>> @privrl.mdp.register_policy
    ... class Threshold(privrl.contracts.AbstractPolicy):
    ...     cut: jax.Array
    """
    if not (isinstance(kind, type) and issubclass(kind, AbstractPolicy)):
        raise TypeError(
            f"`{getattr(kind, '__name__', kind)}` is not a class of policies. Make it a subclass of "
            "`privrl.contracts.AbstractPolicy`, which is a dataclass of arrays."
        )
    _registered[_name(kind)] = kind
    return kind


def is_registered(policy: object) -> bool:
    """Whether the policy, or the advice behind it, is of a registered class."""
    return any(type(one) in _registered.values() for one in (policy, getattr(policy, "advice", None)))


def registered_class(name: str) -> type[AbstractPolicy]:
    """The registered class of this name."""
    if name not in _registered:
        raise ValueError(f"This policy is a `{name}`. Import the module that registers this class, and load it again.")
    return _registered[name]


def class_name_of(policy: AbstractPolicy) -> str:
    """The name under which the class of a policy is registered; empty if it is not."""
    return _name(type(policy)) if type(policy) in _registered.values() else ""


def class_array(policy: AbstractPolicy) -> dict[str, np.ndarray]:
    """The name of a registered class, as the bytes of an array; nothing for privrl's own classes."""
    name = class_name_of(policy)
    return {CLASS: np.frombuffer(name.encode(), np.uint8)} if name else {}


def class_in(arrays: Mapping[str, np.ndarray]) -> type[AbstractPolicy] | None:
    """The class that is named in these arrays, if one is."""
    return registered_class(np.asarray(arrays[CLASS], np.uint8).tobytes().decode()) if CLASS in arrays else None


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
