"""Policies in files: arrays by name, and for policies on measurements the same as JSON."""

import zipfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import ASSISTED_ARRAY_NAMES, AssistedMeasuredPolicy
from privrl.mdp.lq import LinearPolicy
from privrl.mdp.measured_policy import ARRAY_NAMES, MeasuredPolicy
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.certificate import read_json

_POLICIES: tuple[Any, ...] = (TabularPolicy, LinearPolicy, AssistedPolicy)


def is_exported(policy: Any, text: str) -> bool:
    """Whether this is the JSON of that policy, in every digit."""
    try:
        kept = read_json(text)
        return isinstance(policy, MeasuredPolicy | AssistedMeasuredPolicy) and bool(kept == policy.to_json())
    except (ValueError, RecursionError):
        return False


def read_policy(path: Path) -> Any:
    """The policy whose arrays are in an .npz file, of whatever kind."""
    arrays = read_arrays(path)
    try:
        if set(arrays) == ARRAY_NAMES:
            return MeasuredPolicy.from_arrays(arrays)
        if set(arrays) == ASSISTED_ARRAY_NAMES:
            return AssistedMeasuredPolicy.from_arrays(arrays)
        (kind,) = (kind for kind in _POLICIES if {f.name for f in fields(kind)} == set(arrays))
        return kind(**{name: jnp.asarray(array) for name, array in arrays.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{path}` is not a saved policy, or is damaged.") from error


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name."""
    try:
        with np.load(path) as content:
            return {name: content[name] for name in content.files}
    except (AttributeError, TypeError, ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"`{path}` is not a saved policy, or is damaged.") from error
