"""Quadratic features of measurements: the public map phi from a row of a table to R^d.

For measurement j, with v_j in [-1, 1] the position of its value between the public bounds, and with a public centre c_j
and half-width s_j (from a release, or 0 and 1),

    u_j  = clip((v_j - c_j)/s_j, -1.5, 1.5);  missing: u_j = 0, and the indicator m_j = 1 if it was declared `missing`
    phi  = (1/2,  u_1..u_F,  u_j^2 - 1/2,  u_i u_j for the products,  m_j/2,  1/2 [category = value])

Columns are taken in the order of their names, so the order of their declaration does not matter. phi is finite and
bounded for every row, including infinities, NaN in columns that must not be missing, and unknown categories.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.mdp.measurements import Category, Feature, Measurement, check_measurements

_REACH = 1.5  # the bound on |u|, in half-widths from the centre
_HALF = 0.5


def numeric_columns(columns: Sequence[Measurement]) -> tuple[tuple[int, Feature], ...]:
    """The measurements among the columns, each with its place in a row, in the order of their names."""
    found = [(i, column) for i, column in enumerate(columns) if isinstance(column, Feature)]
    return tuple(sorted(found, key=lambda one: one[1].name))


def category_columns(columns: Sequence[Measurement]) -> tuple[tuple[int, Category], ...]:
    """The categories among the columns, in the same form."""
    found = [(i, column) for i, column in enumerate(columns) if isinstance(column, Category)]
    return tuple(sorted(found, key=lambda one: one[1].name))


def positions(columns: Sequence[Measurement], x: Float[Array, "*batch D"]) -> Float[Array, "*batch F"]:
    """The positions of the measurements of rows between their bounds, in [-1, 1]; NaN for missing values."""
    found = numeric_columns(columns)
    low, high = (np.array([getattr(column, end) for _, column in found]) for end in ("low", "high"))
    return _scaled(x[..., np.array([place for place, _ in found], int)], low, high, [c.log for _, c in found])


def _scaled(
    values: Float[Array, "*shape F"],
    low: Float[np.ndarray, " F"],
    high: Float[np.ndarray, " F"],
    log: Sequence[bool],
) -> Float[Array, "*shape F"]:
    """u = 2 (x - low)/(high - low) - 1 in [-1, 1] for each measurement, with log x for x where `log`; NaN stays NaN."""
    of_logs, of = np.asarray(log, bool), (1,) * (values.ndim - 1) + (-1,)
    x = jnp.clip(values, low.reshape(of), high.reshape(of))
    if of_logs.any():
        with np.errstate(divide="ignore", invalid="ignore"):  # of bounds that are not used
            low, high = (np.where(of_logs, np.log(bound), bound) for bound in (low, high))
        x = jnp.where(of_logs.reshape(of), jnp.log(x), x)
    return jnp.clip(2.0 * (x - low.reshape(of)) / (high - low).reshape(of) - 1.0, -1.0, 1.0)


def by_row(function: Callable[[Array], Array], rows: Float[Array, "*batch n"]) -> Array:
    """Apply a function of one row to all rows."""
    found = jax.vmap(function)(rows.reshape(-1, rows.shape[-1]))
    return found.reshape(*rows.shape[:-1], *found.shape[1:])


class QuadraticFeatures(eqx.Module):
    """phi, see the module.

    Arguments:
        columns: the columns of a row, public.
        centre, half_width: c and s of the measurements in the order of their names.
        products: pairs of names whose product is a feature; `None` for all pairs of measurements.
    """

    columns: tuple[Measurement, ...] = eqx.field(static=True)
    centre: Float[Array, " F"]
    half_width: Float[Array, " F"]
    products: tuple[tuple[str, str], ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_measurements(self.columns)
        check_products(self.columns, self.products)
        F = len(numeric_columns(self.columns))
        if self.centre.shape != (F,) or self.half_width.shape != (F,):
            raise ValueError(
                f"`centre` has shape {self.centre.shape} and `half_width` has {self.half_width.shape}; both must hold "
                f"{F} numbers, one per measurement."
            )

    @classmethod
    def unscaled(
        cls, columns: Sequence[Measurement], products: tuple[tuple[str, str], ...] | None = None
    ) -> "QuadraticFeatures":
        """The map that uses only the public bounds."""
        F = len(numeric_columns(columns))
        centre, half_width = jax.device_put((np.zeros(F), np.ones(F)))
        return cls(tuple(columns), centre, half_width, products)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The products, as pairs of numbers of measurements."""
        names = [column.name for _, column in numeric_columns(self.columns)]
        if self.products is None:
            return tuple(combinations(range(len(names)), 2))
        numbered = (sorted((names.index(left), names.index(right))) for left, right in self.products)
        return tuple(sorted((i, j) for i, j in numbered))

    @property
    def dim(self) -> int:
        """d, the number of features."""
        found = numeric_columns(self.columns)
        gaps = sum(column.missing for _, column in found)
        values = sum(len(column.values) for _, column in category_columns(self.columns))
        return 1 + 2 * len(found) + len(self.pairs) + gaps + values

    @property
    def largest_norm(self) -> float:
        """A bound on |phi|."""
        F, gaps = len(numeric_columns(self.columns)), sum(column.missing for _, column in numeric_columns(self.columns))
        squares = F * (_REACH**2 + (_REACH**2 - _HALF) ** 2) + len(self.pairs) * _REACH**4
        return math.sqrt(_HALF**2 * (1 + gaps + len(category_columns(self.columns))) + squares)

    def __call__(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch d"]:
        return by_row(self._of_row, x)

    def _of_row(self, x: Float[Array, " D"]) -> Float[Array, " d"]:
        v = positions(self.columns, x)
        gone = jnp.isnan(v)
        u = (jnp.where(gone, 0.0, v) - self.centre) / self.half_width
        u = jnp.where(gone | jnp.isnan(u), 0.0, jnp.clip(u, -_REACH, _REACH))
        declared = [i for i, (_, column) in enumerate(numeric_columns(self.columns)) if column.missing]
        left, right = (jnp.asarray([pair[k] for pair in self.pairs], int) for k in (0, 1))
        values = [x[place] == jnp.arange(float(len(column.values))) for place, column in category_columns(self.columns)]
        parts = [
            jnp.full(1, _HALF),
            u,
            u**2 - _HALF,
            u[left] * u[right],
            _HALF * gone[jnp.asarray(declared, int)],
            *(_HALF * one for one in values),
        ]
        return jnp.concatenate(parts)


def check_products(columns: Sequence[Measurement], products: tuple[tuple[str, str], ...] | None) -> None:
    """Refuse products of columns that are not measurements, of one with itself, or given twice."""
    names = {column.name for _, column in numeric_columns(columns)}
    seen: set[frozenset[str]] = set()
    for pair in products or ():
        if len(pair) != 2 or not set(pair) <= names or pair[0] == pair[1] or frozenset(pair) in seen:
            raise ValueError(
                f"`products` has {'*'.join(map(str, pair))}; give pairs of two different measurements, each pair once. "
                f"The measurements are {', '.join(sorted(names))}."
            )
        seen.add(frozenset(pair))
