"""A stationary policy on rows of measurements: a few kilobytes, to be exported and run elsewhere.

pi(x) = argmax phi(x)^T theta_a + kappa log P(a|x) over the actions with support (`mdp/anchored.py`), with phi the
quadratic features of `mdp/quadratic_features.py`. A missing measurement is NaN, whether or not the column is declared
`missing`.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from privrl.contracts.policy import AbstractPolicy
from privrl.mdp.anchored import probabilities, scores
from privrl.mdp.measurements import Category, Feature, Measurement
from privrl.mdp.quadratic_features import QuadraticFeatures, category_columns, numeric_columns

_KINDS: dict[str, type] = {"feature": Feature, "category": Category}


class MeasuredPolicy(AbstractPolicy):
    """`policy(observation) -> action`.

    Arguments:
        columns: the entries of an observation, in this order.
        products: pairs of measurements whose product is a feature; `None` for all pairs.
        centre, half_width: of the measurements, in the order of their names.
        advantages: theta.
        practice: B, so that P(a|x) = phi^T B.
        anchor: kappa.
        support: the smallest probability of an action in practice, relative to its most frequent action.
    """

    columns: tuple[Measurement, ...] = eqx.field(static=True)
    products: tuple[tuple[str, str], ...] | None = eqx.field(static=True)
    centre: Float[Array, " F"]
    half_width: Float[Array, " F"]
    advantages: Float[Array, "A d"]
    practice: Float[Array, "d A"]
    anchor: Float[Array, ""]
    support: Float[Array, ""]

    @property
    def features(self) -> QuadraticFeatures:
        return QuadraticFeatures(self.columns, self.centre, self.half_width, self.products)

    @property
    def num_actions(self) -> int:
        return self.advantages.shape[0]

    def scores(self, observation: Float[ArrayLike, "*batch D"]) -> Float[Array, "*batch A"]:
        """The scores by which actions are chosen; minus infinity without support."""
        return _scores(self, jnp.asarray(observation, float))

    def practice_probabilities(self, observation: Float[ArrayLike, "*batch D"]) -> Float[Array, "*batch A"]:
        """P(a|x), the estimated probability of each action in practice, from the releases; adds up to 1."""
        return _practised(self, jnp.asarray(observation, float))

    def choose(self, observation: Float[ArrayLike, "*batch D"]) -> Int[Array, "*batch"]:
        """The actions at these observations; works inside compiled code."""
        return self.scores(observation).argmax(axis=-1)

    def __call__(self, observation: Float[ArrayLike, " D"] | Mapping[str, object]) -> int:
        """The action for one observation, in the form that `rows` takes."""
        row = self.rows(observation)
        if row.ndim != 1:
            raise ValueError(f"`observation` has shape {row.shape}; give one row, or use `choose` for several.")
        return int(np.asarray(self.scores(row)).argmax())

    def rows(self, observation: object) -> Float[np.ndarray, "*batch D"]:
        """Convert observations from outside: numbers in the order of `columns`, or a mapping of names to values.

        In a mapping, a category is given by its text, and an entry that is left out or `None` is missing.
        """
        if isinstance(observation, Mapping):
            observation = np.array([_entry(column, observation.get(column.name)) for column in self.columns])
        row = np.asarray(observation, float)
        if row.shape[-1:] != (len(self.columns),):
            raise ValueError(
                f"`observation` has shape {row.shape}; it must hold {len(self.columns)} numbers: "
                f"{', '.join(column.name for column in self.columns)}."
            )
        return row

    def to_json(self) -> dict[str, object]:
        """The whole policy as JSON, with the features listed; `ExportedPolicy` runs it without JAX."""
        names = [column.name for _, column in numeric_columns(self.columns)]
        phi = self.features
        arrays = {name: np.asarray(getattr(self, name)).tolist() for name in _ARRAYS}
        terms = {
            "measurements": names,
            "products": [[names[i], names[j]] for i, j in phi.pairs],
            "missing": [column.name for _, column in numeric_columns(self.columns) if column.missing],
            "categories": [column.name for _, column in category_columns(self.columns)],
        }
        all_products = {"all_products": self.products is None}
        return {"kind": _KIND, "columns": _written(self.columns), "terms": terms, **all_products, **arrays}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "MeasuredPolicy":
        """Read the output of `to_json`, exactly, because JSON keeps every digit."""
        if content.get("kind") != _KIND:
            raise ValueError(f"This is not the JSON of a policy on measurements: `kind` is not {_KIND!r}.")
        return cls.from_content(content)

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> "MeasuredPolicy":
        """Read the policy from the JSON of any kind that contains one."""
        products = tuple((left, right) for left, right in content["terms"]["products"])
        arrays = {name: jnp.asarray(content[name], float) for name in _ARRAYS}
        return cls(_read(content["columns"]), None if content["all_products"] else products, **arrays)

    def arrays(self) -> dict[str, np.ndarray]:
        """The policy as named arrays, for a saved result; columns and products as the bytes of their JSON."""
        declared = json.dumps([_written(self.columns), self.products]).encode()
        return {"declared": np.frombuffer(declared, np.uint8)} | {n: np.asarray(getattr(self, n)) for n in _ARRAYS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "MeasuredPolicy":
        """Read the output of `arrays`."""
        columns, products = json.loads(np.asarray(arrays["declared"], np.uint8).tobytes())
        pairs = None if products is None else tuple((left, right) for left, right in products)
        return cls(_read(columns), pairs, **{name: jnp.asarray(arrays[name]) for name in _ARRAYS})


@eqx.filter_jit
def _scores(policy: MeasuredPolicy, rows: Float[Array, "*batch D"]) -> Float[Array, "*batch A"]:
    return scores(policy.advantages, policy.practice, policy.anchor, policy.support, policy.features(rows))


@eqx.filter_jit
def _practised(policy: MeasuredPolicy, rows: Float[Array, "*batch D"]) -> Float[Array, "*batch A"]:
    P = probabilities(policy.practice, policy.features(rows))
    return P / P.sum(axis=-1, keepdims=True)


_KIND = "privrl policy on measurements, 1"
_ARRAYS = ("centre", "half_width", "advantages", "practice", "anchor", "support")
ARRAY_NAMES = frozenset({"declared", *_ARRAYS})
"""The names of the arrays of a saved policy."""


def _written(columns: tuple[Measurement, ...]) -> list[dict[str, Any]]:
    """The columns in a form that equals what JSON reads back: lists instead of tuples."""
    written = [{"kind": type(column).__name__.lower(), **dataclasses.asdict(column)} for column in columns]
    return json.loads(json.dumps(written))


def _read(columns: list[dict[str, Any]]) -> tuple[Measurement, ...]:
    made = []
    for column in columns:
        settings = {name: value for name, value in column.items() if name != "kind"}
        made.append(_KINDS[column["kind"]](**settings))
    return tuple(made)


def _entry(column: Measurement, value: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(column, Feature):
        return float(value)
    text = str(value)
    return float(column.values.index(text)) if text in column.values else float("nan")
