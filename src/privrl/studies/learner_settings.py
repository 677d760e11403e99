"""A learner's settings as plain JSON, so that a study can be recognised and its declarations be derived again.

Numbers, text and tuples are written as they are; an `eqx.Module` or a dataclass by its class and fields; an array with
dtype, shape and its numbers: as text up to 64 entries, in base64 up to 4,096, and above that as the SHA-256 of its
bytes (little endian, C order), from which it cannot be rebuilt.
"""

import base64
import dataclasses
import hashlib
import importlib
import inspect
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from privrl.contracts.learner import AbstractAnalysis
from privrl.learners.trials.protocol import Arm, Outcome, Partition, Phase, Protocol
from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.mdp.lq import LQTask
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Category, Feature
from privrl.mdp.reported_columns import ReportedColumns
from privrl.mdp.rules import ActionRule, Condition, Rules
from privrl.studies.own_classes import registry

_IN_WORDS = 64
_IN_FULL = 4096

_TRIALS: tuple[type, ...] = (Protocol, Arm, Outcome, Phase, Partition)
_PARTS: tuple[type, ...] = (
    OneHotFeatures,
    TableFeatures,
    LQTask,
    Feature,
    Category,
    ReportedColumns,
    MeasuredPolicy,
    *_TRIALS,
    Rules,
    ActionRule,
    Condition,
)
own: dict[str, type] = {f"privrl.{cls.__name__}": cls for cls in registry + _PARTS}
"""privrl's own learners and what they are made of, by the name under which settings know them."""


trusted: dict[str, type] = {}
"""Classes of other packages whose settings may be rebuilt, because the user of this process said so."""


def trust_classes(module: str) -> None:
    """Imports a module and lets certificates of the learners that it defines be derived again, by its own code.

    Raises:
        ValueError: the module cannot be imported, or defines no class of which settings are made.
    """
    try:
        found = vars(importlib.import_module(module)).values()
    except ImportError as error:
        raise ValueError(f"The trusted module `{module}` cannot be imported: {error}.") from error
    classes = [cls for cls in found if inspect.isclass(cls) and dataclasses.is_dataclass(cls)]
    classes = [cls for cls in classes if cls.__module__ == module or cls.__module__.startswith(f"{module}.")]
    if not classes:
        raise ValueError(f"The trusted module `{module}` defines no learner. Give the module of the learner's class.")
    trusted.update({class_name(cls): cls for cls in classes})


def settings_of(learner: AbstractAnalysis) -> dict[str, object]:
    """The class of a learner and every one of its settings, as plain JSON.

    The same for equal settings, in every process; different as soon as one setting differs (in value, dtype or shape).
    A setting that cannot be written down, such as a function, is refused: it could change without being noticed.
    """
    return _of(learner, type(learner).__name__)


def known_settings(learner: AbstractAnalysis) -> dict[str, object]:
    """The settings for a certificate. If a learner from outside privrl has a setting that is an object, only its
    class.
    """
    try:
        return settings_of(learner)
    except TypeError:
        return {"class": class_name(type(learner)), "settings": None}


def without_numbers(settings: Any) -> Any:
    """The same settings, of whose arrays dtype and shape are left: what was learnt cannot be read off them."""
    if isinstance(settings, Mapping):
        if {"dtype", "shape"} <= settings.keys():
            return {name: settings[name] for name in ("dtype", "shape")}
        return {name: without_numbers(value) for name, value in settings.items()}
    return [without_numbers(one) for one in settings] if isinstance(settings, (list, tuple)) else settings


def class_name(cls: type) -> str:
    """`privrl.APVI` for privrl's own classes, module and name for others."""
    short = f"privrl.{cls.__name__}"
    return short if own.get(short) is cls else f"{cls.__module__}.{cls.__qualname__}"


def _of(value: Any, where: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (np.ndarray, jax.Array)):
        return _array(np.asarray(value), where)
    if isinstance(value, (tuple, list)):
        return [_of(one, f"{where}[{i}]") for i, one in enumerate(value)]
    if isinstance(value, Mapping):
        return {"mapping": [[_of(k, where), _of(v, f"{where}[{k!r}]")] for k, v in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # every `eqx.Module` is one
        fields = {f.name: _of(getattr(value, f.name), f"{where}.{f.name}") for f in dataclasses.fields(value)}
        return {"class": class_name(type(value)), "settings": fields}
    raise TypeError(
        f"`{where}` is a `{type(value).__name__}`, which cannot be written down as a setting of a study. Use numbers, "
        "text, tuples, arrays, or an `equinox.Module` or dataclass made of these."
    )


def _array(array: np.ndarray, where: str) -> dict[str, object]:
    if array.dtype.kind not in "biufc":
        raise TypeError(f"`{where}` is an array of `{array.dtype}`; settings are arrays of numbers.")
    form = {"dtype": array.dtype.name, "shape": list(array.shape)}
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    if array.size <= _IN_WORDS and array.dtype.kind in "biuf":
        return {"array": [_of(one, where) for one in array.ravel()], **form}
    if array.size <= _IN_FULL:
        return {"base64": base64.b64encode(data).decode(), **form}
    return {"sha256": hashlib.sha256(data).hexdigest(), **form}
