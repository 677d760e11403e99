"""Public rules on actions: what a policy may advise for an observation, after the previous action.

A rule has conditions on the observation and a list of the actions that it allows, for every previous action. It applies
**unless one of its conditions is known to be false**: a missing value makes a condition on that value neither true nor
false, and the rule applies. An action is allowed if every rule that applies allows it. Rules are public arguments; they
never depend on data.

Everything here also runs on arrays of JAX, because it uses operators alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Test = Literal["<", "<=", ">", ">=", "in", "known", "missing"]
NO_ACTION = -1
"""In the place of the previous action: the decision is the first one of its episode."""


@dataclass(frozen=True)
class Condition:
    """A test of one entry of an observation.

    Attributes:
        column: the name of a column, or "state".
        test: a comparison with `bound`; "in": the entry is one of `values`; "known" and "missing".
        bound: a number.
        values: positions of categories, or numbers of states.
    """

    column: str
    test: Test
    bound: float = 0.0
    values: tuple[int, ...] = ()

    def may_hold(self, x: Any) -> Any:
        """Whether the condition is true or, because the value is missing (NaN), unknown."""
        match self.test:
            case "<":
                return (x >= self.bound) ^ True
            case "<=":
                return (x > self.bound) ^ True
            case ">":
                return (x <= self.bound) ^ True
            case ">=":
                return (x < self.bound) ^ True
            case "known":
                return x == x
            case "missing":
                return x != x
        found = x != x
        for value in self.values:
            found = found | (x == value)
        return found

    def to_json(self) -> dict[str, object]:
        """Plain JSON."""
        own: dict[str, object] = {"values": list(self.values)} if self.test == "in" else {}
        if self.test in ("<", "<=", ">", ">="):
            own = {"bound": self.bound}
        return {"column": self.column, "test": self.test, **own}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Condition":
        """Read the output of `to_json`."""
        return cls(content["column"], content["test"], content.get("bound", 0.0), tuple(content.get("values", ())))


@dataclass(frozen=True)
class ActionRule:
    """If all conditions hold, only some actions are allowed.

    Attributes:
        text: the rule as it was written.
        conditions: what must hold; without any, the rule always applies.
        allowed: the allowed actions. One list, if they do not depend on the previous action; otherwise 1 + A lists, the
            first for the first decision of an episode and then one for each previous action.
    """

    text: str
    conditions: tuple[Condition, ...]
    allowed: tuple[tuple[int, ...], ...]

    @property
    def needs_previous(self) -> bool:
        """Whether the allowed actions depend on the previous one."""
        return len(self.allowed) > 1

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        conditions = [condition.to_json() for condition in self.conditions]
        return {"text": self.text, "if": conditions, "allowed": [list(actions) for actions in self.allowed]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ActionRule":
        """Read the output of `to_json`."""
        conditions = tuple(Condition.from_json(one) for one in content["if"])
        return cls(content["text"], conditions, tuple(tuple(actions) for actions in content["allowed"]))


@dataclass(frozen=True)
class Rules:
    """Rules on the actions 0 to A - 1. Without any rule, everything is allowed.

    Attributes:
        rules: the rules.
        num_actions: A.
    """

    rules: tuple[ActionRule, ...] = ()
    num_actions: int = 0

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def texts(self) -> list[str]:
        """The rules as they were written."""
        return [rule.text for rule in self.rules]

    @property
    def need_previous(self) -> bool:
        """Whether a rule depends on the previous action."""
        return any(rule.needs_previous for rule in self.rules)

    def to_json(self) -> list[dict[str, Any]]:
        """Plain JSON."""
        return [rule.to_json() for rule in self.rules]

    @classmethod
    def from_json(cls, content: Sequence[Mapping[str, object]], num_actions: int) -> "Rules":
        """Read the output of `to_json`."""
        return cls(tuple(ActionRule.from_json(one) for one in content), num_actions if content else 0)

    def allowed(self, row: Mapping[str, float], previous: int | None) -> list[bool]:
        """Whether each action is allowed at one observation, a mapping from names to numbers (NaN if missing).

        `previous` is the previous action, or `None` at the first decision of an episode.
        """
        found = [True] * self.num_actions
        for rule in self.rules:
            if all(condition.may_hold(row[condition.column]) for condition in rule.conditions):
                at = 0 if previous is None or not rule.needs_previous else 1 + previous
                found = [kept and action in rule.allowed[at] for action, kept in enumerate(found)]
        return found

    def mask(self, names: Sequence[str], rows: Any, previous: Any = None) -> Any:
        """Whether each action is allowed at each row `[*n, D]`, as an array `[*n, A]` of the same library.

        Arguments:
            names: of the entries of a row.
            rows: numbers, with NaN for missing values.
            previous: the previous actions `[*n]`, -1 at the first decision of an episode. Without them, rules that
                depend on the previous action are left out.
        """
        batch = rows.shape[:-1]
        found = (rows[..., :1] == rows[..., :1]) | np.ones((*(1,) * len(batch), self.num_actions), bool)
        for rule in self.rules:
            if rule.needs_previous and previous is None:
                continue
            applies = rows[..., 0] == rows[..., 0]
            applies = applies | (applies ^ True)
            for condition in rule.conditions:
                applies = applies & condition.may_hold(rows[..., list(names).index(condition.column)])
            table = _table(rule.allowed, self.num_actions)
            for at, allowed in enumerate(table):
                here = applies if len(table) == 1 else applies & (previous == at - 1)
                found = found & ((here ^ True)[..., None] | allowed.reshape(*(1,) * len(batch), -1))
        return found

    def state_table(self, num_states: int, previous: int | None = None) -> np.ndarray:
        """Whether each action is allowed in each state, `[S, A]`, after the previous action `previous` (-1: none).

        Without `previous`, rules that depend on it are left out.
        """
        if not self.rules:
            raise ValueError("There are no rules, and so no number of actions.")
        states = np.arange(num_states, dtype=float)[:, None]
        return self.mask(("state",), states, None if previous is None else np.full(num_states, previous))


def describe_rules(rules: Rules) -> list[str]:
    """Sentences for reports."""
    found = [f"Rule on actions: {text}." for text in rules.texts]
    if rules.need_previous:
        found.append(
            "Rules that depend on the previous action are kept at every decision. The policy was planned without them."
        )
    return found


RULES = "rules"
"""The name of the array of rules in a saved policy."""


def rules_array(rules: Rules) -> dict[str, np.ndarray]:
    """The rules as a named array of a saved policy: the bytes of their JSON. Without any rule there is no array."""
    if not rules:
        return {}
    return {RULES: np.frombuffer(json.dumps([rules.num_actions, rules.to_json()]).encode(), np.uint8)}


def rules_from_arrays(arrays: Mapping[str, np.ndarray]) -> Rules:
    """Read the output of `rules_array` among the arrays of a saved policy."""
    if RULES not in arrays:
        return Rules()
    num_actions, content = json.loads(np.asarray(arrays[RULES], np.uint8).tobytes())
    return Rules.from_json(content, num_actions)


def _table(allowed: Sequence[Sequence[int]], num_actions: int) -> np.ndarray:
    table = np.zeros((len(allowed), num_actions), bool)
    for row, actions in zip(table, allowed, strict=True):
        row[list(actions)] = True
    return table
