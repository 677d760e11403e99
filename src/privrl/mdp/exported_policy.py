"""A saved policy on measurements, read from its `policy.json` and run with NumPy alone.

This module is imported in a fraction of a second, because it needs neither JAX nor the rest of privrl. The formulas
are those of `measured_policy.py` and `assisted_measured.py`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privrl.shapes import Float

LEAVE = -1
"""The answer "leave it to the clinician"."""
_REACH, _HALF = 1.5, 0.5
_LEAST_PROBABILITY = 0.01


class ExportedPolicy:
    """`policy(observation) -> action`, or -1 if the decision is left to the clinician.

    Arguments:
        content: the JSON of a policy, as `Result.save` writes it to `policy.json`.

    Example:
    ```python
    policy = ExportedPolicy.load("policy/policy.json")
    policy({"lactate": 2.1, "map": 65.0, "ward": "icu"})
    ```
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        if content.get("kind") not in _KINDS:
            raise ValueError(f"This is not the JSON of a policy on measurements: `kind` must be one of {_KINDS}.")
        self._content = content
        self._columns = {column["name"]: column for column in content["columns"]}
        self._practice, self._advantages = (np.array(content[name], float) for name in ("practice", "advantages"))

    @classmethod
    def load(cls, path: str | Path) -> "ExportedPolicy":
        """Read a `policy.json`. Verify it first with the certificate next to it: see `privrl certify`."""
        return cls(json.loads(Path(path).read_text(encoding="utf-8")))

    def __call__(self, observation: Sequence[float] | Mapping[str, Any]) -> int:
        """The action for one observation.

        Arguments:
            observation: numbers in the order of the columns, with NaN for missing values; or a mapping from names to
                values, in which a category is its text and a missing value is `None` or left out.
        """
        phi = self._features(self._row(observation))
        likely = phi @ self._practice
        likely = np.where(np.isnan(likely), _LEAST_PROBABILITY, np.clip(likely, _LEAST_PROBABILITY, 1.0))
        score = self._advantages @ phi + self._content["anchor"] * np.log(likely)
        best = int(np.where(self._content["support"] * likely.max() > likely, -np.inf, score).argmax())
        kept = self._content.get("assistance")
        return best if kept is None or _is_advised(kept, phi, likely[best] / likely.sum()) else LEAVE

    def _row(self, observation: Sequence[float] | Mapping[str, Any]) -> dict[str, float]:
        if isinstance(observation, Mapping):
            return {name: _entry(column, observation.get(name)) for name, column in self._columns.items()}
        if len(observation) != len(self._columns):
            raise ValueError(
                f"An observation has {len(observation)} entries; it must hold {len(self._columns)}: "
                f"{', '.join(self._columns)}."
            )
        return dict(zip(self._columns, map(float, observation), strict=True))

    def _features(self, row: dict[str, float]) -> Float[np.ndarray, " d"]:
        terms, u, gone = self._content["terms"], {}, {}
        for name, centre, width in zip(
            terms["measurements"], self._content["centre"], self._content["half_width"], strict=True
        ):
            position = _position(self._columns[name], row[name])
            gone[name] = float(math.isnan(position))
            u[name] = 0.0 if math.isnan(position) else min(max((position - centre) / width, -_REACH), _REACH)
        phi = [_HALF, *u.values(), *(v * v - _HALF for v in u.values()), *(u[a] * u[b] for a, b in terms["products"])]
        phi += [_HALF * gone[name] for name in terms["missing"]]
        for name in terms["categories"]:
            phi += [_HALF * (row[name] == k) for k in range(len(self._columns[name]["values"]))]
        return np.array(phi)


_KINDS = ("privrl policy on measurements, 1", "privrl assisted policy on measurements, 1")


def _position(column: Mapping[str, Any], value: float) -> float:
    """Where a measurement lies between its bounds, in [-1, 1]; NaN if it is missing."""
    if math.isnan(value):
        return value
    value, low, high = min(max(value, column["low"]), column["high"]), column["low"], column["high"]
    if column["log"]:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return 2.0 * (value - low) / (high - low) - 1.0


def _entry(column: Mapping[str, Any], value: Any) -> float:
    if value is None:
        return math.nan
    if column["kind"] == "feature":
        return float(value)
    return float(column["values"].index(str(value))) if str(value) in column["values"] else math.nan


def _is_advised(kept: Mapping[str, Any], phi: Float[np.ndarray, " d"], likely: float) -> bool:
    """Whether practice takes the action often enough in the cell of this observation for it to be advised at all."""
    row = int(np.searchsorted(kept["probability_edges"], likely, side="right"))
    value = min(max(float(phi @ np.array(kept["values"])), -1.0), 1.0)
    column = int(np.searchsorted(kept["value_edges"], value, side="right"))
    support = kept["support"][row * (len(kept["value_edges"]) + 1) + column]
    return float(kept["max_ratio"]) > 1.0 and support >= kept["least_support"]
