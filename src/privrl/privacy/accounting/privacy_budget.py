"""How much may be revealed about one person: a privacy budget, given in one of three ways.

- **approximate**: (epsilon, delta). Every outcome would have had almost the same probability (factor e^epsilon, slack
  delta) if one person's data had been different.
- **pure**: epsilon alone, no slack.
- **concentrated**: rho. The Rényi divergence of every order a is at most a rho; the delta is only used to report an
  epsilon, too.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

BudgetKind = Literal["approximate", "pure", "concentrated"]

_REPORTING_DELTA = 1e-6

_POSITIVE = "`{}` is {}; it must be a finite number above 0. {}"
_TOO_SMALL = "A smaller budget protects people more, but without any nothing can be learnt. Give, for example, 1."
_TOO_LARGE = "To run without privacy use a non-private privatizer instead of a huge budget."
_BAD_DELTA = (
    "`delta` is {}; it must lie strictly between 0 and 1, well below one over the number of people. "
    "Omit it (with `epsilon`) for pure differential privacy."
)


class BudgetError(ValueError):
    """The privacy budget is malformed, or it cannot pay for the requested releases."""


class PrivacyWarning(UserWarning):
    """A budget or a source of noise protects people less than it may seem."""


@dataclass(frozen=True)
class Budget:
    """A privacy budget. Create one with `Budget.of`.

    Attributes:
        epsilon: the bound on the log-ratio of probabilities; `None` for a concentrated budget.
        delta: the slack in (0, 1); 0 for a pure budget; only used for reporting with a concentrated one.
        rho: the zero-concentrated bound; `None` unless the budget was given as rho.
    """

    epsilon: float | None
    delta: float
    rho: float | None = None

    def __post_init__(self) -> None:
        if self.epsilon is not None and self.rho is not None:
            raise BudgetError(
                f"Both `epsilon` = {self.epsilon} and `rho` = {self.rho} were given; a budget has one currency. "
                "Give `epsilon` (with `delta`), or `rho`."
            )
        if self.epsilon is None and self.rho is None:
            raise BudgetError(
                "Neither `epsilon` nor `rho` was given. Give `epsilon` and `delta`, `epsilon` alone for pure "
                "differential privacy, or `rho`."
            )
        for name, value in (("epsilon", self.epsilon), ("rho", self.rho)):
            if value is not None and not 0 < value < math.inf:
                raise BudgetError(_refusal(name, value, _TOO_LARGE if value > 0 else _TOO_SMALL))
        if not (0 < self.delta < 1 or (self.delta == 0 and self.rho is None)):
            raise BudgetError(_refusal("delta", self.delta))

    @classmethod
    def of(cls, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None) -> "Budget":
        """A budget from (`epsilon`, `delta`), from `epsilon` alone (pure), or from `rho`.

        `Budget.of(epsilon=1.0, delta=1e-6)`, `Budget.of(epsilon=1.0)` and `Budget.of(rho=0.1)` all work; with `rho`,
        a `delta` (1e-6 unless given) only says at which delta an epsilon is reported.
        """
        if delta is None:
            delta = 0.0 if rho is None else _REPORTING_DELTA
        return cls(
            epsilon=None if epsilon is None else _number("epsilon", epsilon),
            delta=_number("delta", delta),
            rho=None if rho is None else _number("rho", rho),
        )

    @property
    def kind(self) -> BudgetKind:
        """`"approximate"`, `"pure"` or `"concentrated"`."""
        if self.rho is not None:
            return "concentrated"
        return "approximate" if self.delta > 0 else "pure"

    def __str__(self) -> str:
        if self.rho is not None:
            return (
                f"rho = {self.rho:g} (zero-concentrated differential privacy; "
                f"epsilon is reported at delta = {self.delta:g})"
            )
        if self.delta > 0:
            return f"epsilon = {self.epsilon:g}, delta = {self.delta:g} (approximate differential privacy)"
        return f"epsilon = {self.epsilon:g} (pure differential privacy)"


def _number(name: str, value: Any) -> float:
    """Numbers of Python, NumPy and JAX become floats; anything else is refused by name."""
    if isinstance(value, bool | str) or getattr(value, "shape", ()) != ():
        raise BudgetError(_refusal(name, repr(value)))
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BudgetError(_refusal(name, repr(value))) from None


def _refusal(name: str, value: object, remedy: str = "Give one number.") -> str:
    """What is wrong with a value of `epsilon`, `delta` or `rho`."""
    return _BAD_DELTA.format(value) if name == "delta" else _POSITIVE.format(name, value, remedy)
