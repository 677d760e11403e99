"""Rules on actions as they are written: a TOML file, or the same as Python values.

    [[rule]]
    if = ["map < 60", "ward is icu"]       # optional; all of them must hold
    then = "norepinephrine < 0.05"         # or a list; all of them must hold

Conditions are about a declared column (`map < 60`, `ward is icu`, `ward in icu, step-down`, `map is known`,
`map is missing`), about a state (`state in 3, 4`, or the columns of a grid if the names of the states have them), or
about the previous action (`previous >= 3`, `previous norepinephrine < 0.05`). Limits are about the action, by number or
name (`action <= 2`, `action is not 3`), about a dose (`norepinephrine < 0.05`, at an edge), or relative to the previous
action (`action <= previous + 1`, `norepinephrine <= previous`, in levels).

Rules are public. They are compiled and checked before any person is read: rules that leave no action for some
observation, and comparisons that could never hold, are refused.
"""

import math
import operator
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from privrl.mdp.measurements import BinnedAction, Category, Feature, Measurement
from privrl.mdp.observations import STATE
from privrl.mdp.rules import ActionRule, Condition, Rules

RulesLike = str | Path | Mapping[str, object] | Sequence[Mapping[str, object]] | Rules
"""The path of a file of rules, its content, the list of its rules, or compiled rules."""
PREVIOUS, ACTION = "previous", "action"
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_MAX_CASES = 100_000
_NOT_IN_IF = {
    "or": "`or` is not supported. Write two rules with the same `then`; for values of one column, `ward in icu, home`.",
    "and": "`and` is not supported. Write a list of conditions, which must all hold.",
}
_NOT_IN_THEN = {
    "or": "`or` is not supported. Write one limit on what is allowed, for example `action in 0, 1`.",
    "and": "`and` is not supported. Write a list of limits, which must all hold.",
}
"""What to do about a word that joins two conditions, if they cannot be read."""


@dataclass(frozen=True)
class Vocabulary:
    """What rules can be about: the public facts of a table.

    Attributes:
        num_actions: A.
        columns: the declared columns, if states are measurements.
        num_states, state_names: the states of a finite world.
        action_names: names of actions.
        doses: the doses of which an action consists, the last one counting fastest.
    """

    num_actions: int
    columns: tuple[Measurement, ...] = ()
    num_states: int = 0
    state_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    doses: tuple[BinnedAction, ...] = ()


def read_rules(source: RulesLike, words: Vocabulary) -> Rules:
    """The rules, compiled for these columns or states, and these actions.

    Raises:
        ValueError: a rule cannot be read, is about something that is not declared, could never apply, or the rules
            together leave no action.
    """
    if isinstance(source, Rules):
        if source and source.num_actions != words.num_actions:
            raise ValueError(f"The rules are for {source.num_actions} actions, and there are {words.num_actions}.")
        _check_some_action(source, words)
        return source
    entries = _entries(source)
    rules = tuple(_compile(entry, number, words) for number, entry in enumerate(entries, 1))
    found = Rules(rules, words.num_actions if rules else 0)
    _check_some_action(found, words)
    return found


def _entries(source: str | Path | Mapping[str, object] | Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    content: object = source
    what = f"`{source}`" if isinstance(source, str | Path) else "The content of a file of rules"
    if isinstance(source, str | Path):
        try:
            content = tomllib.loads(Path(source).read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(
                f"The file of rules `{source}` cannot be read: {error.strerror}. Give the path of a TOML file with "
                "entries `[[rule]]`."
            ) from None
        except UnicodeDecodeError:
            raise ValueError(f"`{source}` is not a text file. Give a TOML file of rules.") from None
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"`{source}` is not a TOML file: {error}.") from None
    if isinstance(content, Mapping):
        if set(content) != {"rule"}:
            raise ValueError(f"{what} must have entries `[[rule]]` and nothing else.")
        content = content["rule"]
    if not isinstance(content, Sequence) or isinstance(content, str) or not content:
        raise ValueError(
            f"{what} must have at least one rule: `[[rule]]` with `then`, and with `if` unless it is always."
        )
    return list(content)


def _compile(entry: object, number: int, words: Vocabulary) -> ActionRule:
    if not isinstance(entry, Mapping) or not set(entry) <= {"if", "then"} or "then" not in entry:
        raise ValueError(f"Rule {number} must have `then`, may have `if`, and nothing else.")
    when, then = _texts(entry.get("if", []), number, "if"), _texts(entry["then"], number, "then")
    if not then:
        raise ValueError(f"Rule {number} has no limit. Give `then`, for example `action <= 2`.")
    text = f"if {' and '.join(when)} then {' and '.join(then)}" if when else f"always {' and '.join(then)}"
    one, remedies = "", _NOT_IN_IF
    try:
        conditions, after = [], []
        for one in when:
            name, test = _parse(one)
            if name == PREVIOUS or name.startswith(f"{PREVIOUS} "):
                after.append(_level_test(name.removeprefix(PREVIOUS).strip() or ACTION, test, words))
            else:
                conditions.append(_condition(name, test, words))
        limits, remedies = [], _NOT_IN_THEN
        for one in then:
            limits.append(_level_test(*_parse(one), words))
    except ValueError as error:
        joined = next((f" {remedy}" for word, remedy in remedies.items() if word in one.split()), "")
        raise ValueError(f"Rule {number}, `{text}`: {error}{joined}") from None
    relative = bool(after) or any(limit.relative for limit in limits)
    allowed = [_allowed(limits, after, previous, words.num_actions) for previous in [None, *range(words.num_actions)]]
    return ActionRule(text, tuple(conditions), tuple(allowed) if relative else (allowed[0],))


def _texts(value: object, number: int, what: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"`{what}` of rule {number} must be text in quotes, or a list of texts.")
    return [" ".join(text.split()) for text in texts]


@dataclass(frozen=True)
class _Test:
    """The part of a condition after its subject: a comparison with `value`, or membership in `members`."""

    sign: str
    value: str = ""
    members: tuple[str, ...] = ()
    negated: bool = False


def _parse(text: str) -> tuple[str, _Test]:
    """The subject of a condition, and its test."""
    if found := re.fullmatch(r"(.+?) ?(<=|>=|<|>) ?(.+)", text):
        return found[1], _Test(found[2], found[3])
    if found := re.fullmatch(r"(.+?) is (known|missing)", text):
        return found[1], _Test(found[2])
    if found := re.fullmatch(r"(.+?) (?:is (not )?|(not )?in )(.+)", text):
        several = text[len(found[1]) :].lstrip().removeprefix("not ").startswith("in ")
        members = tuple(one.strip() for one in found[4].split(",")) if several else (found[4],)
        return found[1], _Test("in", members=members, negated=bool(found[2] or found[3]))
    raise ValueError(f"`{text}` is not a condition. Write, for example, `map < 60`, `ward is icu` or `action <= 2`.")


# ------------------------------------------------------------------------------------------- conditions on observations


def _condition(name: str, test: _Test, words: Vocabulary) -> Condition:
    column = next((column for column in words.columns if column.name == name), None)
    if isinstance(column, Feature):
        return _of_feature(column, test)
    if isinstance(column, Category):
        return _of_category(column, test)
    if words.columns:
        known = ", ".join(column.name for column in words.columns)
        raise ValueError(f"`{name}` is not a declared column. The columns are {known}.")
    states = range(words.num_states)
    if name == STATE:
        held = [s for s in states if _state_holds(s, test, words)]
    else:
        held = [s for s in states if _cell_holds(name, test, words, s)]
    return Condition(STATE, "in", values=tuple(held))


def _of_feature(column: Feature, test: _Test) -> Condition:
    if test.sign in ("known", "missing"):
        return Condition(column.name, test.sign)  # type: ignore[arg-type]
    if test.sign not in _COMPARE:
        raise ValueError(f"`{column.name}` is a measurement; compare it with <, <=, > or >=.")
    bound = _number(test.value)
    if not column.low < bound < column.high:
        raise ValueError(
            f"{bound:g} does not lie between the bounds {column.low:g} and {column.high:g} of `{column.name}`, so the "
            "condition would never change. Check the unit of the number."
        )
    return Condition(column.name, test.sign, bound)  # type: ignore[arg-type]


def _of_category(column: Category, test: _Test) -> Condition:
    if test.sign in ("known", "missing"):
        return Condition(column.name, test.sign)  # type: ignore[arg-type]
    if test.sign != "in":
        raise ValueError(f"`{column.name}` is a category; write `{column.name} is {column.values[0]}`.")
    if unknown := [value for value in test.members if value not in column.values]:
        raise ValueError(f"`{unknown[0]}` is not one of the values of `{column.name}`: {', '.join(column.values)}.")
    held = (k for k, value in enumerate(column.values) if (value in test.members) != test.negated)
    return Condition(column.name, "in", values=tuple(held))


def _state_holds(state: int, test: _Test, words: Vocabulary) -> bool:
    if test.sign in _COMPARE:
        return _COMPARE[test.sign](state, _index(test.value, words.num_states, words.state_names, "state"))
    if test.sign != "in":
        raise ValueError("A state is always known.")
    members = {_index(one, words.num_states, words.state_names, "state") for one in test.members}
    return (state in members) != test.negated


def _cell_holds(name: str, test: _Test, words: Vocabulary, state: int) -> bool:
    """Whether a condition on a column of a grid holds in a state, by the name of the state; it may hold if the column
    is missing there. States whose names do not have the column are not concerned."""
    known = {value for text in words.state_names for _, _, value in _cells(name, text)}
    if not known:
        raise ValueError(
            f"`{name}` is not in the names of the states. Write `state in 3, 4`, or give the names that "
            "`privrl prepare --grid` writes (`--state-names`)."
        )
    if unknown := sorted(set(test.members) - known):
        raise ValueError(f"`{unknown[0]}` is not a value of `{name}` in the names of the states.")
    cells = _cells(name, words.state_names[state])
    if not cells:
        return False
    if len(cells) > 1:
        raise ValueError(f"`{name}` is ambiguous in the names of the states. Write `state in 3, 4`.")
    low, high, value = cells[0]
    if value == "missing":
        return test.sign != "known"
    if test.sign in ("known", "missing"):
        return test.sign == "known"
    if test.sign == "in":
        return (value in test.members) != test.negated
    bound = _number(test.value)
    if low < bound < high or test.sign in ("<=", ">"):
        raise ValueError(f"A state is an interval of `{name}`: compare it with < or >=, at an edge of its grid.")
    return high <= bound if test.sign == "<" else low >= bound


def _cells(name: str, text: str) -> list[tuple[float, float, str]]:
    """The parts of the name of a state that are about a column: its interval, or its value (empty if it is a number).

    The forms are those of `privrl prepare`: `map < 65`, `65 <= map < 78`, `map >= 78`, `ward icu`, `map missing`.
    """
    column, found = re.escape(name), []
    form = rf"(?:(\S+) <= )?{column} < (\S+)|{column} >= (\S+)|{column} ([^<>]+)"
    for match in filter(None, (re.fullmatch(form, part) for part in text.split(", "))):
        try:
            low, high = float(match[1] or match[3] or -math.inf), float(match[2] or math.inf)
        except ValueError:
            continue
        found.append((low, high, match[4] or ""))
    return found


# --------------------------------------------------------------------------------------------- limits on actions


@dataclass(frozen=True)
class _LevelTest:
    """A test of the level of an action, or of the level of one dose in it.

    `levels` has the level of each action; `holds` the test of a level, given that of the previous action.
    """

    levels: tuple[int, ...]
    holds: Callable[[int, int], bool]
    relative: bool = False

    def of(self, action: int, previous: int | None) -> bool:
        before = 0 if previous is None else self.levels[previous]
        return (self.relative and previous is None) or self.holds(self.levels[action], before)


def _level_test(name: str, test: _Test, words: Vocabulary) -> _LevelTest:
    number = next((i for i, dose in enumerate(words.doses) if dose.name == name), None)
    if name != ACTION and number is None:
        known = ", ".join([ACTION, *(dose.name for dose in words.doses)])
        raise ValueError(f"`{name}` is not an action. Write about {known}.")
    dose = None if number is None else words.doses[number]
    levels = tuple(range(words.num_actions)) if number is None else _dose_levels(words.doses, number)
    if test.sign in _COMPARE:
        compare = _COMPARE[test.sign]
        if found := re.fullmatch(rf"{PREVIOUS}(?: ?([+-]) ?(\d+))?", test.value):
            shift = int(found[2] or 0) * (-1 if found[1] == "-" else 1)
            return _LevelTest(levels, lambda level, before: compare(level, before + shift), relative=True)
        if dose is not None and test.sign in ("<=", ">"):
            raise ValueError(f"An action is an interval of `{name}`: compare it with < or >=, at one of its edges.")
        at = _level(test.value, dose, words)
        return _LevelTest(levels, lambda level, before: compare(level, at))
    if test.sign != "in":
        raise ValueError("An action is always known.")
    members = {_level(one, dose, words) for one in test.members}
    return _LevelTest(levels, lambda level, before: (level in members) != test.negated)


def _level(text: str, dose: BinnedAction | None, words: Vocabulary) -> int:
    if dose is None:
        return _index(text, words.num_actions, words.action_names, "action")
    if _number(text) not in dose.edges:
        edges = ", ".join(f"{edge:g}" for edge in dose.edges)
        raise ValueError(f"{text} is not an edge of `{dose.name}`. Its edges are {edges}.")
    return dose.edges.index(_number(text))


def _dose_levels(doses: Sequence[BinnedAction], number: int) -> tuple[int, ...]:
    """The level of one dose in each action."""
    total, after = (math.prod(dose.num_actions for dose in some) for some in (doses, doses[number + 1 :]))
    return tuple(action // after % doses[number].num_actions for action in range(total))


def _allowed(
    limits: Iterable[_LevelTest], after: Sequence[_LevelTest], previous: int | None, num_actions: int
) -> tuple[int, ...]:
    applies = not after or (previous is not None and all(one.of(previous, None) for one in after))
    every = range(num_actions)
    return tuple(a for a in every if not applies or all(limit.of(a, previous) for limit in limits))


def _index(text: str, count: int, names: Sequence[str], what: str) -> int:
    """A number, or the position of a name."""
    if text in names:
        return list(names).index(text)
    if not re.fullmatch(r"\d+", text) or int(text) >= count:
        raise ValueError(f"`{text}` is not {what} 0 to {count - 1}{', nor the name of one' if names else ''}.")
    return int(text)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"`{text}` is not a number.")
    return number


# --------------------------------------------------------------------------------------------- some action is left


def _check_some_action(rules: Rules, words: Vocabulary) -> None:
    """Refuses rules that leave no action for some observation and some previous action.

    Rules cut each column at finitely many numbers, so one value of each interval, each of the numbers themselves and a
    missing value stand for all observations. A branch is left out if all rules that may still apply agree on an action.
    """
    for previous in [None, *range(words.num_actions)] if rules.need_previous else [None]:
        lists = [set(rule.allowed[0 if previous is None or not rule.needs_previous else 1 + previous])
                 for rule in rules.rules]  # fmt: skip
        values = _representatives(rules, words)
        pending: list[tuple[tuple[str, ...], tuple[int, ...]]] = [(tuple(values), tuple(range(len(lists))))]
        seen = 0
        while pending:
            (names, applying), seen = pending.pop(), seen + 1
            if not applying or set.intersection(*(lists[i] for i in applying)):
                continue
            if not names or seen > _MAX_CASES:
                texts = "; ".join(rules.rules[i].text for i in applying)
                after = "" if previous is None else f" after action {previous}"
                why = "may leave" if names else "leave"
                raise ValueError(
                    f"These rules {why} no action{after} if all of them apply: {texts}. Change one of them."
                )
            here, *rest = names
            branches = {tuple(i for i in applying if _may_apply(rules.rules[i], here, x)) for x in values[here]}
            pending += [(tuple(rest), branch) for branch in branches]


def _may_apply(rule: ActionRule, name: str, x: float) -> bool:
    return all(condition.may_hold(x) for condition in rule.conditions if condition.column == name)


def _representatives(rules: Rules, words: Vocabulary) -> dict[str, list[float]]:
    """Values of each column that rules are about, one for each way in which rules can tell them apart."""
    conditions = [condition for rule in rules.rules for condition in rule.conditions]
    found: dict[str, list[float]] = {}
    for name in dict.fromkeys(condition.column for condition in conditions):
        column = next((column for column in words.columns if column.name == name), None)
        if name == STATE and not words.columns:
            found[name] = [float(s) for s in range(words.num_states)]
        elif isinstance(column, Category):
            found[name] = [*map(float, range(len(column.values))), math.nan]
        elif isinstance(column, Feature):
            bounds = {condition.bound for condition in conditions if condition.column == name}
            cuts = sorted({column.low, column.high, *bounds})
            found[name] = [*cuts, *((a + b) / 2 for a, b in pairwise(cuts)), math.nan]
        else:
            raise ValueError(f"The rules are about `{name}`, which is not declared.")
    return found
