"""The page of an audit: what was claimed, what an attacker could prove, and what that means."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from privrl.reports.rendering import HtmlTable, embed_picture, find_pictures, render_page

AUDIT = "audit.json"
_NOT_WRITTEN = "the file is damaged or was not written by `privrl audit`"
_TOLERANCE = 1 + 1e-9

AuditOutcome = Literal["BROKEN", "claim false", "not broken"]


class _Entry:
    """A JSON object of an audit, read field by field; errors name the field."""

    def __init__(self, content: Mapping[str, object]) -> None:
        self._content = content

    def number(self, name: str) -> float:
        """A number that must be there; JSON has no infinity, so it is written as "inf"."""
        found = self.optional_number(name)
        if found is None:
            raise ValueError(f"`{AUDIT}` lacks `{name}`; {_NOT_WRITTEN}.")
        return found

    def optional_number(self, name: str) -> float | None:
        value = self._content.get(name)
        if value is None:
            return None
        if value == "inf" or (isinstance(value, int | float) and not isinstance(value, bool)):
            return float(value)
        raise ValueError(f"In `{AUDIT}` the field `{name}` must be a number; {_NOT_WRITTEN}.")

    def text(self, name: str) -> str:
        if name not in self._content:
            raise ValueError(f"`{AUDIT}` lacks `{name}`; {_NOT_WRITTEN}.")
        return str(self._content[name])

    def optional_text(self, name: str) -> str:
        return str(self._content.get(name) or "")

    def flag(self, name: str) -> bool:
        return self._content.get(name) is True

    def entries(self, name: str) -> "list[_Entry]":
        return _read_entries(self._content.get(name) or [])


@dataclass(frozen=True)
class _Sensitivity:
    """How far two records were found to move a sum, and the sensitivity for which its noise was made."""

    release: str
    adjacency: str
    found: float
    declared: float


@dataclass(frozen=True)
class _AuditedRecipe:
    """One recipe of an audit; see `AuditReport` for what the numbers are."""

    recipe: str
    claimed: float
    exact: float | None
    lower: float
    delta: float
    trials: float
    confidence: float
    broken: bool
    sensitivities: tuple[_Sensitivity, ...]

    @classmethod
    def from_entry(cls, entry: _Entry) -> "_AuditedRecipe":
        sensitivities = tuple(
            _Sensitivity(one.text("release"), one.text("adjacency"), one.number("found"), one.number("declared"))
            for one in entry.entries("sensitivities")
        )
        return cls(
            entry.text("recipe"),
            entry.number("epsilon_claimed"),
            entry.optional_number("epsilon_exact"),
            entry.number("epsilon_lower"),
            entry.number("delta"),
            entry.number("trials"),
            entry.number("confidence"),
            entry.flag("broken"),
            sensitivities,
        )

    @property
    def verdict(self) -> AuditOutcome:
        """The verdict of the file, but never a better one than its own numbers allow."""
        if self.broken or self.lower > (self.claimed if self.exact is None else self.exact) * _TOLERANCE:
            return "BROKEN"
        return "claim false" if self.lower > self.claimed * _TOLERANCE else "not broken"

    @property
    def settings(self) -> str:
        return f"{self.trials:,.0f} trials, delta {self.delta:g}, confidence {100 * self.confidence:g}%"


@dataclass(frozen=True)
class _KnownBadCase:
    """A mechanism that is known not to be private, and whether the audit caught it."""

    name: str
    claimed: float
    audited: float
    caught: bool
    unit: str
    paper: str
    explanation: str

    @classmethod
    def from_entry(cls, entry: _Entry) -> "_KnownBadCase":
        texts = [entry.optional_text(key).rstrip(".") for key in ("flaw", "proof", "detail")]
        return cls(
            entry.text("name"),
            entry.number("claimed"),
            entry.number("audited"),
            entry.text("caught") == "True",
            entry.optional_text("unit"),
            entry.optional_text("paper"),
            " ".join(f"{text[:1].upper()}{text[1:]}." for text in texts if text),
        )


def render_audit(folder: str | Path) -> str:
    """Render the page of a folder with `audit.json` (about recipes or known-bad cases) and plots (.svg or .png)."""
    folder = Path(folder)
    content = _read(folder / AUDIT)
    if isinstance(content, Mapping) and "cases" in content:
        return _render_cases([_KnownBadCase.from_entry(one) for one in _read_entries(content["cases"], 1)], folder)
    entries = _read_entries([content] if isinstance(content, Mapping) else content, 1)
    return _render_recipes([_AuditedRecipe.from_entry(one) for one in entries], folder)


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"`{path}` is not JSON; {_NOT_WRITTEN}.") from error


def _read_entries(content: object, at_least: int = 0) -> list[_Entry]:
    fine = isinstance(content, list) and all(isinstance(entry, Mapping) for entry in content)
    if not isinstance(content, list) or not fine or len(content) < at_least:
        raise ValueError(f"`{AUDIT}` contains no audits. It must be one object, a list of objects, or `cases`.")
    return [_Entry(entry) for entry in content]


def _render_recipes(audited: Sequence[_AuditedRecipe], folder: Path) -> str:
    rows = [
        (f"`{one.recipe}`", *map(_format_epsilon, (one.claimed, one.exact, one.lower)), one.verdict) for one in audited
    ]
    settings = {one.settings for one in audited}
    each = [f"`{one.recipe}`: {one.settings}." for one in audited]
    return render_page(
        "audit.html",
        title="A privacy claim, tested by attacks" if len(audited) == 1 else "Privacy claims, tested by attacks",
        count=len(audited),
        broken=[one.recipe for one in audited if one.verdict == "BROKEN"],
        overclaimed=[one.recipe for one in audited if one.verdict == "claim false"],
        pictures=_embed_pictures(folder, "claimed epsilon and what the audit proved"),
        table=HtmlTable(
            ("recipe", "claimed", "exact", "proved", "verdict"),
            rows,
            "Epsilon of each recipe",
            numbers=(1, 2, 3),
            marked={i: "bad" for i, one in enumerate(audited) if one.verdict != "not broken"},
        ),
        settings=f"Settings: {settings.pop()}." if len(settings) == 1 else " ".join(each),
        sensitivities=_table_of_sensitivities(audited),
    )


def _table_of_sensitivities(audited: Sequence[_AuditedRecipe]) -> HtmlTable | None:
    found = [(report.recipe, one) for report in audited for one in report.sensitivities]
    rows = [
        (f"`{recipe}`, {one.release}", one.adjacency, _format_epsilon(one.found), _format_epsilon(one.declared))
        for recipe, one in found
    ]
    columns, caption = ("release", "neighbours", "found", "declared"), "The largest change that the search found"
    beyond = [i for i, (_, one) in enumerate(found) if one.found > one.declared * _TOLERANCE]
    return HtmlTable(columns, rows, caption, numbers=(2, 3), marked=dict.fromkeys(beyond, "bad")) if rows else None


def _render_cases(cases: Sequence[_KnownBadCase], folder: Path) -> str:
    rows = [
        (one.name, _format_epsilon(one.claimed), _format_epsilon(one.audited), one.unit, "yes" if one.caught else "no")
        for one in cases
    ]
    return render_page(
        "known_bad.html",
        title="Known mistakes, and whether the audit catches them",
        count=len(cases),
        missed=[one.name for one in cases if not one.caught],
        pictures=_embed_pictures(folder, "what was claimed and what the audit found, for each case"),
        table=HtmlTable(
            ("case", "claimed", "audited", "unit", "caught"),
            rows,
            numbers=(1, 2),
            marked={i: "bad" for i, one in enumerate(cases) if not one.caught},
        ),
        explained=[
            (f"{one.name} ({one.paper})" if one.paper else one.name, one.explanation)
            for one in cases
            if one.explanation
        ],
    )


def _embed_pictures(folder: Path, what: str) -> list[str]:
    described = "Plot {}: {}. The table below has the numbers."
    return [embed_picture(path, described.format(path.stem, what)) for path in find_pictures(folder)]


def _format_epsilon(value: float | None) -> str:
    if value is None:
        return "-"
    return "infinite" if math.isinf(value) else f"{value:.4g}"
