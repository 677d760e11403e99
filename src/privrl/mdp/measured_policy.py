"""A stationary policy on rows of measurements: a few kilobytes, to be exported and run elsewhere.

pi(x) = argmax phi(x)^T theta_a + kappa log P(a|x) over the actions with support (`mdp/anchored.py`), with phi the
quadratic features of `mdp/quadratic_features.py`. A missing measurement is NaN, whether or not the column is declared
`missing`.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from privrl.contracts.policy import CLASS, AbstractPolicy, class_array, class_in, class_name_of, registered_class
from privrl.mdp.anchored import probabilities, scores
from privrl.mdp.exported_policy import ON_MEASUREMENTS, Advice, ExportedPolicy
from privrl.mdp.measurements import Category, Feature, Measurement
from privrl.mdp.observations import read_rows
from privrl.mdp.quadratic_features import QuadraticFeatures, category_columns, numeric_columns
from privrl.mdp.rules import NO_ACTION, Rules, rules_array, rules_from_arrays

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
        support: the smallest probability of an action in practice, relative to its most frequent allowed action.
        rules: public rules; the policy chooses among the allowed actions.
    """

    columns: tuple[Measurement, ...] = eqx.field(static=True)
    products: tuple[tuple[str, str], ...] | None = eqx.field(static=True)
    centre: Float[Array, " F"]
    half_width: Float[Array, " F"]
    advantages: Float[Array, "A d"]
    practice: Float[Array, "d A"]
    anchor: Float[Array, ""]
    support: Float[Array, ""]
    rules: Rules = eqx.field(static=True, default=Rules())

    @property
    def features(self) -> QuadraticFeatures:
        return QuadraticFeatures(self.columns, self.centre, self.half_width, self.products)

    @property
    def num_actions(self) -> int:
        return self.advantages.shape[0]

    def scores(
        self, observation: Float[ArrayLike, "*batch D"], previous: Int[ArrayLike, "*batch"] | None = None
    ) -> Float[Array, "*batch A"]:
        """The scores by which actions are chosen; minus infinity without support, and if a rule forbids the action.

        `previous` are the previous actions, -1 at the first decision of an episode. Without them, rules that depend on
        the previous action are left out.
        """
        return _scores(self, jnp.asarray(observation, float), None if previous is None else jnp.asarray(previous))

    def practice_probabilities(self, observation: Float[ArrayLike, "*batch D"]) -> Float[Array, "*batch A"]:
        """P(a|x), the estimated probability of each action in practice, from the releases; adds up to 1."""
        return _practised(self, jnp.asarray(observation, float))

    def choose(
        self, observation: Float[ArrayLike, "*batch D"], previous: Int[ArrayLike, "*batch"] | None = None
    ) -> Int[Array, "*batch"]:
        """The actions at these observations, `previous` as in `scores`; works inside compiled code."""
        return self.scores(observation, previous).argmax(axis=-1)

    def __call__(self, observation: Float[ArrayLike, " D"] | Mapping[str, object]) -> int:
        """The action for one observation, in the form that `rows` takes, at the first decision of an episode."""
        row = self.rows(observation)
        if row.ndim != 1:
            raise ValueError(f"`observation` has shape {row.shape}; give one row, or use `choose` for several.")
        return int(np.asarray(self.scores(row, np.array(NO_ACTION))).argmax())

    def rows(self, observation: object) -> Float[np.ndarray, "*batch D"]:
        """Convert observations from outside: numbers in the order of `columns`, or a mapping of names to values.

        In a mapping, a category is given by its text, and an entry that is left out or `None` is missing. Unknown names
        and categories, and text in place of numbers, are errors.
        """
        return read_rows(self.columns, observation)

    def advise(
        self, observation: Mapping[str, object] | Sequence[float] | np.ndarray, *, previous: int | None = None
    ) -> Advice:
        """The action for one observation, and what is unusual about it: values that are missing or out of bounds.

        Arguments:
            observation: in the form that `rows` takes, one row.
            previous: the action that was taken at the last decision of the episode; only rules use it.
        """
        return ExportedPolicy(self.to_json()).advise(observation, previous=previous)

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
        rules = {"rules": self.rules.to_json()} if self.rules else {}
        written = {"columns": _written(self.columns), "terms": terms, **all_products, **arrays, **rules}
        own: dict[str, object] = {}
        if name := class_name_of(self):
            added = {added: np.asarray(getattr(self, added)).tolist() for added in _added(type(self))}
            own = {CLASS: name, "added": added}
        return {"kind": ON_MEASUREMENTS, **written, **own}

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> "MeasuredPolicy":
        """Read the output of `to_json`, exactly, because JSON keeps every digit."""
        if content.get("kind") != ON_MEASUREMENTS:
            raise ValueError(f"This is not the JSON of a policy on measurements: `kind` is not {ON_MEASUREMENTS!r}.")
        return cls.from_content(content)

    @classmethod
    def from_content(cls, content: Mapping[str, object]) -> "MeasuredPolicy":
        """Read the policy from the JSON of any kind that contains one."""
        written: Mapping[str, Any] = content
        products = tuple((left, right) for left, right in written["terms"]["products"])
        arrays = {name: jnp.asarray(written[name], float) for name in _ARRAYS}
        rules = Rules.from_json(written.get("rules", ()), len(written["advantages"]))
        kind: Any = registered_class(written[CLASS]) if CLASS in written else cls
        arrays |= {name: jnp.asarray(written["added"][name]) for name in _added(kind)}
        return kind(_read(written["columns"]), None if written["all_products"] else products, **arrays, rules=rules)

    def arrays(self) -> dict[str, np.ndarray]:
        """The policy as named arrays, for a saved result; columns and products as the bytes of their JSON."""
        declared = json.dumps([_written(self.columns), self.products]).encode()
        names = (*_ARRAYS, *_added(type(self)))
        own = {"declared": np.frombuffer(declared, np.uint8)} | {n: np.asarray(getattr(self, n)) for n in names}
        return own | rules_array(self.rules) | class_array(self)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "MeasuredPolicy":
        """Read the output of `arrays`."""
        columns, products = json.loads(np.asarray(arrays["declared"], np.uint8).tobytes())
        pairs = None if products is None else tuple((left, right) for left, right in products)
        kind: Any = class_in(arrays) or cls
        read: dict[str, Any] = {name: jnp.asarray(arrays[name]) for name in (*_ARRAYS, *_added(kind))}
        return kind(_read(columns), pairs, **read, rules=rules_from_arrays(arrays))


@eqx.filter_jit
def _scores(
    policy: MeasuredPolicy, rows: Float[Array, "*batch D"], previous: Int[Array, "*batch"] | None
) -> Float[Array, "*batch A"]:
    allowed = None
    if policy.rules:
        allowed = policy.rules.mask([column.name for column in policy.columns], rows, previous)
    settings = (policy.advantages, policy.practice, policy.anchor, policy.support)
    return scores(*settings, policy.features(rows), allowed)


@eqx.filter_jit
def _practised(policy: MeasuredPolicy, rows: Float[Array, "*batch D"]) -> Float[Array, "*batch A"]:
    P = probabilities(policy.practice, policy.features(rows))
    return P / P.sum(axis=-1, keepdims=True)


_ARRAYS = ("centre", "half_width", "advantages", "practice", "anchor", "support")
ARRAY_NAMES = frozenset({"declared", *_ARRAYS})
"""The names of the arrays of a saved policy."""


def _added(kind: type[MeasuredPolicy]) -> tuple[str, ...]:
    """The names of the fields that a subclass adds."""
    inherited = {field.name for field in dataclasses.fields(MeasuredPolicy)}
    return tuple(field.name for field in dataclasses.fields(kind) if field.name not in inherited)


def _written(columns: tuple[Measurement, ...]) -> list[dict[str, object]]:
    """The columns in a form that equals what JSON reads back: lists instead of tuples."""
    written = [{"kind": type(column).__name__.lower(), **dataclasses.asdict(column)} for column in columns]
    return json.loads(json.dumps(written))


def _read(columns: list[dict[str, Any]]) -> tuple[Measurement, ...]:
    made = []
    for column in columns:
        settings = {name: value for name, value in column.items() if name != "kind"}
        made.append(_KINDS[column["kind"]](**settings))
    return tuple(made)
