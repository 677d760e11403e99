"""Settings for which a statistic's bound is proved, and a refusal of all others; one voice for every statistic.

A sensitivity is a theorem about a contribution *and its settings*: weights that are not negative, a clip level that is
a number, a table of features within the unit ball. What is known when a statistic is built is checked here, once.
Arrays inside compiled code (traced) have a shape and no values yet, so no check can see them: each statistic brings
those into range when it uses them, and its bound holds whatever they hold.
"""

import math
import numbers
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from privrl.mdp.features import AbstractFeatures, OneHotFeatures
from privrl.privacy.noise.bounding import clip_by_norm

SMALLEST = float(np.finfo(np.float64).tiny)  # processors may treat anything smaller as 0
_LARGEST = 1e150  # squares stay finite
_ROUNDING = 1e-9  # of a feature's norm; what is above 1 is cut


def check_sizes(**sizes: object) -> None:
    """Numbers of states, steps and the like: whole numbers, at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, numbers.Integral) or size < 1:
            raise ValueError(f"`{name}` is {size}; it must be a whole number, at least 1.")


def check_positive(**values: object) -> None:
    """Clip levels and scales: positive finite numbers."""
    _check_numbers(values, SMALLEST, "a positive finite number, chosen without data")


def check_not_negative(**values: object) -> None:
    """Weights: finite numbers, at least 0."""
    _check_numbers(values, 0.0, "a finite number, at least 0")


def _check_numbers(values: dict[str, object], low: float, allowed: str) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise ValueError(f"`{name}` is {value!r}; it must be a number, known before anything is compiled.")
        if not low <= float(value) <= _LARGEST:
            raise ValueError(f"`{name}` is {value}; it must be {allowed}.")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """One of a few words: for another one no bound is proved."""
    if value not in choices:
        raise ValueError(f"`{name}` is {value!r}; give one of {', '.join(map(repr, choices))}.")


def check_terminal(terminal: tuple[int, ...], num_states: int) -> None:
    """A tuple of states of the world."""
    whole = isinstance(terminal, tuple) and all(
        not isinstance(s, bool) and isinstance(s, numbers.Integral) for s in terminal
    )
    if not whole or not all(0 <= s < num_states for s in terminal):
        raise ValueError(f"`terminal` is {terminal}; give a tuple of whole numbers in [0, {num_states}).")


def as_stage(h: ArrayLike | None) -> Array | None:
    """One step as an array, or `None` for all steps."""
    return None if h is None else jnp.asarray(h)


def as_step(h: ArrayLike) -> Array:
    """One step as an array."""
    return jnp.asarray(h)


def check_stage(stage: Array, horizon: float) -> None:
    """One step, a whole number in [0, horizon)."""
    if stage.shape != () or stage.dtype.kind not in "iu":
        raise ValueError(f"`stage` has shape {stage.shape} and type {stage.dtype}; give one whole number.")
    if _known(stage) and not 0 <= int(stage) < horizon:
        raise ValueError(f"`stage` is {int(stage)}; steps lie in [0, {horizon}).")


def check_array(
    name: str, value: Array, shape: tuple[int, ...], low: float = -math.inf, high: float = math.inf
) -> None:
    """An array of this shape whose entries are finite and lie in [low, high]; entries only where they are known."""
    if value.shape != shape:
        raise ValueError(f"`{name}` has shape {value.shape}; it must be {shape}.")
    if not _known(value):
        return
    x = np.asarray(value)
    if not bool((np.isfinite(x) & (x >= low) & (x <= high)).all()):
        allowed = "finite numbers" if math.isinf(low) and math.isinf(high) else f"numbers in [{low:g}, {high:g}]"
        raise ValueError(f"`{name}` has entries outside what its bound is proved for; give {allowed}.")


def check_features(features: AbstractFeatures) -> None:
    """Features within the unit ball, the same ones in `table` as in `of`."""
    if type(features) is OneHotFeatures:
        check_sizes(num_states=features.num_states, num_actions=features.num_actions)
        return
    S, A, d = features.num_states, features.num_actions, features.dim
    if features.table.shape != (S, A, d) or not _known(features.table):
        check_array("features.table", features.table, (S, A, d))
        return
    table = np.asarray(features.table)
    s, a = np.indices((S, A))
    with jax.ensure_compile_time_eval():  # a table that is known is checked even where a plan is being traced
        rows = np.asarray(features.of(s, a))
    if not np.array_equal(table, rows, equal_nan=True):
        raise ValueError("`features.of` does not give the rows of `features.table`, from which sensitivities are read.")
    if not bool((np.linalg.norm(table, axis=-1) <= 1.0 + _ROUNDING).all()):
        raise ValueError("`features` has rows of norm above 1, or not finite; divide them by their largest norm.")


def unit_features(
    features: AbstractFeatures,
    states: Int[Array | np.ndarray, " N"],
    actions: Int[Array | np.ndarray, " N"],
    counted: Bool[Array, " N"],
) -> Float[Array, "N d"]:
    """The features of the rows that count (of others, those of some row), each cut to norm 1.

    A cut toward the unit ball never moves two vectors apart, so distances read off the table stay bounds.
    """
    phi = features.of(jnp.where(counted, states, 0), jnp.where(counted, actions, 0))
    return phi if type(features) is OneHotFeatures else jax.vmap(lambda x: clip_by_norm(x, 1.0))(phi)


def unit_weights(weights: Float[Array, "*shape"], bound: float | Float[Array, ""] = 1.0) -> Float[Array, "*shape"]:
    """Weights brought into [0, bound]; 0 where they are not a number."""
    return jnp.clip(jnp.where(jnp.isnan(weights), 0.0, weights), 0.0, bound)


def _known(value: object) -> bool:
    return not isinstance(value, jax.core.Tracer)
