"""The text form of declarations, shared by the options of commands and the lines of a schema file.

    NAME:LO..HI[:missing][:log]     a measurement with public bounds
    NAME:a,b,c[:missing]            a category with its public values
    NAME:a,b,c or NAME              the groups by which an evaluation reports; NAME if it is a category
    NAME:MOST                       a second outcome with its public largest total of an episode
    A*B                             a pair of measurements whose product is a feature; `none` for no product
    0,0.02,0.05                     the edges of a dose

A schema file is TOML that holds the options of a command by name: `unit = "patient_id"`, `feature = ["map:30..130"]`.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from privrl.mdp.measurements import BinnedAction, Category, Feature

SETTINGS = "privrl"
"""The key of the metadata of a Parquet file under which `privrl prepare` writes its public settings."""
FILL_IN = "FILL-IN"
"""The placeholder that a draft holds for every fact that must be filled in by hand."""

_NAMES = ("unit", "episode", "step", "state", "reward", "next_state", "terminated", "propensity")
_COUNTS = ("horizon", "num_states", "num_actions", "max_episodes_per_unit", "max_actions")
_REPORTED = ("by", "outcome")
_LISTS = ("feature", "category", "product", "action", "action_edges")


def parse_feature(words: str) -> Feature:
    """Parse `NAME:LO..HI[:missing][:log]`.

    >>> parse_feature("lactate:0.1..20:missing:log")
    Feature(name='lactate', low=0.1, high=20.0, missing=True, log=True)
    """
    rest, flags = _flags(words, ("missing", "log"))
    name, colon, bounds = rest.rpartition(":")
    low, dots, high = bounds.partition("..")
    if not colon or not dots:
        raise ValueError(
            f"`{words}` does not declare a measurement. Write NAME:LO..HI, for example `map:30..130:missing`. Take the "
            "bounds from public knowledge, never from the data."
        )
    return Feature(name, _number(low, words), _number(high, words), "missing" in flags, "log" in flags)


def parse_category(words: str) -> Category:
    """Parse `NAME:a,b,c[:missing]`.

    >>> parse_category("ward:icu,step-down")
    Category(name='ward', values=('icu', 'step-down'), missing=False)
    """
    rest, flags = _flags(words, ("missing",))
    name, colon, values = rest.rpartition(":")
    if not colon:
        raise ValueError(f"`{words}` does not declare a category. Write NAME:a,b,c, for example `ward:icu,step-down`.")
    return Category(name, tuple(value.strip() for value in values.split(",")), "missing" in flags)


def parse_groups(words: str, known: Sequence[Category]) -> Category:
    """Parse `NAME:a,b,c`, or the name of a category that is declared already.

    >>> parse_groups("sex:female,male", ()).values
    ('female', 'male')
    """
    found = next((one for one in known if one.name == words), None)
    if found is None and ":" not in words:
        raise ValueError(f"`by` is `{words}`, which is not a declared category. Write NAME:a,b,c: `sex:female,male`.")
    return parse_category(words) if found is None else found


def parse_outcome(words: str) -> Feature:
    """Parse `NAME:MOST`.

    >>> parse_outcome("cost:50000")
    Feature(name='cost', low=0.0, high=50000.0, missing=True, log=False)
    """
    name, colon, most = words.rpartition(":")
    largest = _number(most, words) if colon else 0.0
    if not largest > 0.0:
        raise ValueError(
            f"`{words}` does not declare a second outcome. Write NAME:MOST, for example `cost:50000`, where MOST is a "
            "public number above 0: the largest total of one episode."
        )
    return Feature(name, 0.0, largest, missing=True)


def parse_products(several: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse pairs `A*B`; the word `none` alone means no pair."""
    if list(several) == ["none"]:
        return ()
    pairs = []
    for words in several:
        first, star, second = words.partition("*")
        if not star or not first or not second:
            raise ValueError(f"`{words}` is not a product. Write A*B, for example `map*lactate`, or `none` alone.")
        pairs.append((first.strip(), second.strip()))
    return tuple(pairs)


def parse_doses(names: Sequence[str], edges: Sequence[str]) -> tuple[BinnedAction, ...]:
    """The doses of these columns, cut at edges `0,0.02,0.05`, with one list of edges per column."""
    if len(names) != len(edges):
        raise ValueError(
            f"`action` names {len(names)} columns, and `action_edges` gives {len(edges)} lists. Give `action_edges` "
            "once for each `action`, in the same order."
        )
    return tuple(
        BinnedAction(name, tuple(_number(edge, line) for edge in line.split(",")))
        for name, line in zip(names, edges, strict=True)
    )


def read_schema_file(path: str | Path) -> dict[str, object]:
    """Read the options in a schema file, keyed by their names with underscores.

    Raises:
        ValueError: if the file is not TOML, has an unknown line, or still holds `FILL-IN`.
    """
    try:
        found = tomllib.loads(Path(path).read_text())
    except UnicodeDecodeError:  # its message quotes bytes of the file, which may be a table of people
        raise ValueError(
            f"`{path}` is not a text file. Give a schema in TOML, as `privrl schema init` drafts it, and the table "
            "after it."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"`{path}` is not a TOML file: {error}.") from None
    return parse_schema(found, f"`{path}`")


def parse_schema(schema: Mapping[str, object], what: str) -> dict[str, Any]:
    """The options of a table that a schema holds, by their names with underscores; `what` is the schema in errors."""
    words: dict[str, Any] = {}
    for key, value in schema.items():
        if FILL_IN in str(value):
            raise ValueError(f"`{key}` in {what} is still {FILL_IN}. Fill it in from public knowledge.")
        name = key.replace("-", "_")
        kind = next((kind for kind, names in _KINDS.items() if name in names), None)
        if kind is None:
            known = ", ".join(sorted(name for names in _KINDS.values() for name in names))
            raise ValueError(f"{what} has an unknown line `{key}`. The options are {known}.")
        words[name] = kind(value, f"`{key}` in {what}")
    return words


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} must be the name of a column, in quotes.")
    return value


def _declared(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f'{what} must be a declaration in quotes, such as "sex:female,male" or "cost:50000".')
    return value


def _texts(value: object, what: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f'{what} must be text in quotes, or a list of texts such as ["a", "b"].')
    return list(texts)


def _count(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{what} must be a whole number.")
    return value


def _counts(value: object, what: str) -> list[int]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{what} must be a list of whole numbers such as [7, 8].")
    return [_count(entry, what) for entry in value]


def _truth(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{what} must be true or false, without quotes.")
    return value


def _share(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} must be a number.")
    return float(value)


def _direction(value: object, what: str) -> str:
    if value not in ("high", "low"):
        raise ValueError(f'{what} must be "high" or "low": which values of the reward are good.')
    return str(value)


_KINDS: dict[Callable[[object, str], object], tuple[str, ...]] = {
    _text: _NAMES,
    _declared: _REPORTED,
    _count: _COUNTS,
    _texts: _LISTS,
    _counts: ("terminal",),
    _direction: ("good",),
    _share: ("least_propensity",),
    _truth: ("rewards_at_end", "sort"),
}


def _flags(words: str, known: tuple[str, ...]) -> tuple[str, set[str]]:
    """Split off the known flags at the end."""
    flags: set[str] = set()
    while words.rpartition(":")[2] in known:
        words, _, flag = words.rpartition(":")
        flags.add(flag)
    return words, flags


def _number(text: str, words: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"`{words}` has {text.strip()!r} in place of a number.") from None
