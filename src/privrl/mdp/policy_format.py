"""What a `policy.json` must hold. It is checked once, when a policy is read, so that a damaged policy never advises.

`readPolicy` in `service/client/privrl-policy.mjs` checks the same list, in the same order. Bounds of numbers keep every
later sum and product finite.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from privrl.mdp.observations import STATE, whole_number

_LARGEST = 1e100  # of a number, if no other bound is given
_COMPARISONS, _TESTS = ("<", "<=", ">", ">="), ("known", "missing")


def is_number(value: object, low: float = -_LARGEST, high: float = _LARGEST) -> bool:
    """Whether it is a number from `low` to `high`."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high


def check_policy(content: Mapping[str, Any], *, assisted: bool, measured: bool) -> None:
    """Refuse a policy that is damaged.

    Raises:
        ValueError: something is missing or out of range; the message says what.
    """
    if measured:
        names = _check_measured(content)
        actions: float = len(content["advantages"])
        kept = content.get("assistance") if assisted else None
    else:
        names, kept = [STATE], content
        actions = content.get("num_actions", math.inf if assisted and "rules" not in content else None)
        _need(
            actions == math.inf or _is_whole(actions, 1, 2**20),
            "`num_actions` must be a whole number from 1 to 2^20 - 1",
        )
        _check_states(content, actions, assisted)
    if assisted:
        _need(isinstance(kept, Mapping), "`assistance` must be an object")
        _check_assistance(kept or {}, int(actions) if measured else None)
    for part in ("state_names", "action_names"):
        _need(_is_list(content.get(part, []), _is_text), f"`{part}` must be a list of texts")
    _check_rules(content.get("rules", []), names, actions)


def _check_states(content: Mapping[str, Any], actions: float, assisted: bool) -> None:
    def is_choice(one: object) -> bool:
        return _is_whole(one, 0, actions) or (_is_list(one, is_chance) and 0.0 < sum(chance for _, chance in one) < 1e9)  # type: ignore[attr-defined]

    def is_chance(pair: Any) -> bool:
        return _is_list(pair, lambda _: True, 2) and _is_whole(pair[0], 0, actions) and is_number(pair[1], 0.0, 2.0)

    if assisted:
        advice = content.get("advice")
        _need(_is_list(advice, lambda a: _is_whole(a, 0, actions)) and advice, "`advice` must hold actions")
        states = len(advice or ())
        for part in ("support", "strength"):
            _need(_is_list(content.get(part), _is_share, states), f"`{part}` must hold a number in [0, 1] by state")
    else:
        horizon, steps = content.get("horizon"), content.get("steps")
        _need(_is_whole(horizon, 1), "`horizon` must be a whole number above 0")
        _need(_is_list(steps, lambda row: _is_list(row, is_choice) and row), "`steps` must hold actions by state")
        states = len(steps[0]) if steps else 0
        rows = steps and len(steps) in (1, horizon) and all(len(row) == states for row in steps)
        _need(rows, "`steps` must have one row, or one for each step, all of one length")
    names = content.get("state_names", [""] * states)
    _need(_is_list(names, _is_text, states), "`state_names` must hold a text by state")


def _check_measured(content: Mapping[str, Any]) -> list[str]:
    """The names of the columns."""
    columns = content.get("columns")
    _need(_is_list(columns, _is_column) and columns, "`columns` must describe measurements and categories")
    found: list[Mapping[str, Any]] = list(columns or ())
    names = [column["name"] for column in found]
    _need(len(set(names)) == len(names), "`columns` must have different names")
    numeric = [column["name"] for column in found if column["kind"] == "feature"]
    sizes = {column["name"]: len(column["values"]) for column in found if column["kind"] == "category"}
    terms: Any = content.get("terms")
    terms = terms if isinstance(terms, Mapping) else {}
    parts = [terms.get(part) for part in ("measurements", "products", "missing", "categories")]
    known = _is_list(parts[0], lambda name: _is_text(name) and name in numeric) and len(set(parts[0])) == len(parts[0])
    _need(known, "`terms.measurements` must name measurements, each once")
    is_term: Callable[[object], bool] = lambda name: _is_text(name) and name in parts[0]  # noqa: E731
    _need(_is_list(parts[1], lambda pair: _is_list(pair, is_term, 2)), "`terms.products` must hold pairs of them")
    _need(_is_list(parts[2], is_term), "`terms.missing` must name some of them")
    _need(_is_list(parts[3], lambda name: _is_text(name) and name in sizes), "`terms.categories` must name categories")
    count = len(parts[0])
    _need(_is_list(content.get("centre"), is_number, count), "`centre` must hold a number by measurement")
    widths = _is_list(content.get("half_width"), lambda x: is_number(x, 0.0) and x > 0.0, count)
    _need(widths, "`half_width` must hold a number above 0 by measurement")
    dim = 1 + 2 * count + len(parts[1]) + len(parts[2]) + sum(sizes[name] for name in parts[3])
    gains = content.get("advantages")
    rows = _is_list(gains, lambda row: _is_list(row, is_number, dim)) and gains
    _need(rows, "`advantages` must hold a number by action and feature")
    practice = _is_list(content.get("practice"), lambda row: _is_list(row, is_number, len(gains or ())), dim)
    _need(practice, "`practice` must hold a number by feature and action")
    _need(is_number(content.get("anchor")), "`anchor` must be a number")
    _need(_is_share(content.get("support")), "`support` must be a number in [0, 1]")
    return names


def _check_assistance(kept: Mapping[str, Any], actions: int | None) -> None:
    """Limits; and, on measurements, the table of supports."""
    least, weight = kept.get("least_support"), kept.get("max_weight")
    _need(_is_whole(kept.get("horizon"), 1), "`horizon` must be a whole number above 0")
    _need(_is_limit(kept.get("max_ratio")), '`max_ratio` must be a number, at least 1, or "inf"')
    _need(_is_limit(weight) and weight != 1, '`max_weight` must be a number above 1, or "inf"')
    _need(_is_share(least) and least, "`least_support` must be a number in (0, 1]")
    if actions is not None:
        edges = kept.get("probability_edges")
        rising = _is_list(edges, is_number) and all(a < b for a, b in pairwise(edges or ()))
        _need(rising, "`probability_edges` must hold rising numbers")
        cells = (len(edges or ()) + 1) * actions**2
        _need(_is_list(kept.get("support"), _is_share, cells), f"`support` must hold {cells} numbers in [0, 1]")
        unit = is_number(kept.get("advantage_unit"), 0.0, sys.float_info.max)
        _need(unit, "`advantage_unit` must be a finite number, at least 0")


def _check_rules(rules: object, names: Sequence[str], actions: float) -> None:
    def is_condition(one: Any) -> bool:
        if not isinstance(one, Mapping) or one.get("column") not in names:
            return False
        test = one.get("test")
        bounded = test in _COMPARISONS and is_number(one.get("bound"), -sys.float_info.max, sys.float_info.max)
        return bounded or test in _TESTS or (test == "in" and _is_list(one.get("values"), lambda v: _is_whole(v, 0)))

    def is_rule(one: Any) -> bool:
        if not isinstance(one, Mapping) or not _is_text(one.get("text")) or not _is_list(one.get("if"), is_condition):
            return False
        lists: Any = one.get("allowed")
        listed = _is_list(lists, lambda allowed: _is_list(allowed, lambda a: _is_whole(a, 0, actions)))
        return listed and len(lists) in (1, 1 + actions)

    _need(_is_list(rules, is_rule), "`rules` must have known tests of known columns, and lists of actions")


def _is_column(one: Any) -> bool:
    if not isinstance(one, Mapping) or not (_is_text(one.get("name")) and one["name"]):
        return False
    if not isinstance(one.get("missing"), bool):
        return False
    if one.get("kind") == "category":
        values: Any = one.get("values")
        return _is_list(values, lambda v: _is_text(v) and bool(v)) and len(set(values)) == len(values) >= 2
    parts: list[Any] = [one.get(part) for part in ("low", "high", "log")]
    low, high, log = parts
    ordered = is_number(low) and is_number(high) and low < high and isinstance(log, bool)
    return one.get("kind") == "feature" and ordered and (not log or low > 0.0)


def _is_list(value: object, fits: Callable[[Any], object], length: int | None = None) -> bool:
    return isinstance(value, (list, tuple)) and length in (None, len(value)) and all(fits(one) for one in value)


def _is_whole(value: object, low: int, below: float = math.inf) -> bool:
    number = whole_number(value)
    return number is not None and low <= number < below


def _is_share(value: object) -> bool:
    return is_number(value, 0.0, 1.0)


def _is_limit(value: object) -> bool:
    return value == "inf" or is_number(value, 1.0, sys.float_info.max)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _need(found: object, expected: str) -> None:
    if not found:
        raise ValueError(expected)
