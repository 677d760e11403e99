"""An audit as a page: what was claimed, what an attacker could show, and what that means."""

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from privrl.reports.page import answers, listed, page, paragraph, picture, pictures_in, table

AUDIT = "audit.json"
_REPORT_KEYS = ("recipe", "epsilon_claimed", "epsilon_lower", "delta", "trials", "confidence")
_CASE_KEYS = ("name", "claimed", "audited", "caught")
_NUMBERS = ("epsilon_claimed", "epsilon_exact", "epsilon_lower", "delta", "trials", "confidence", "claimed", "audited")


def audit_page(folder: str | Path) -> str:
    """The page of a folder with `audit.json` (on recipes or known-bad cases) and plots (.svg or .png)."""
    folder = Path(folder)
    content = _read(folder / AUDIT)
    plots = pictures_in(folder)
    if isinstance(content, Mapping) and "cases" in content:
        return _known_bad(_checked(content["cases"], _CASE_KEYS), plots)
    reports = [content] if isinstance(content, Mapping) else content
    return _audited(_checked(reports, _REPORT_KEYS), plots)


def _audited(reports: Sequence[Mapping[str, Any]], plots: Sequence[Path]) -> str:
    verdicts = [_verdict(report) for report in reports]
    title = "A privacy claim, put to the test" if len(reports) == 1 else "Privacy claims, put to the test"
    shown = ("epsilon_claimed", "epsilon_exact", "epsilon_lower")
    rows = [
        (f"`{report['recipe']}`", *(_number(report.get(name)) for name in shown), verdict)
        for report, verdict in zip(reports, verdicts, strict=True)
    ]
    marked = {i: "bad" for i, verdict in enumerate(verdicts) if verdict != _FINE}
    columns = ("recipe", "claimed", "exact", "shown", "verdict")
    parts = [
        f"<h1>{escape(title)}</h1>",
        *_found(reports, verdicts),
        *_pictures(plots, "claimed epsilon against what the audit could show"),
        "<h2>Epsilon, claimed and shown</h2>",
        table(columns, rows, caption="Epsilon of each recipe", numbers=(1, 2, 3), marked=marked),
        paragraph(_settings(reports), "small"),
        _sensitivities(reports),
        "<h2>What this means</h2>",
        listed(
            [
                "Claimed: the epsilon that is promised. Exact: what exact accounting says of the noise that was added.",
                "Shown: an attacker who knows everybody else's record ran the recipe many times in two worlds that "
                "differ in one person, and told them apart better than a smaller epsilon allows. With the stated "
                "confidence the true epsilon is at least this.",
                "Shown above claimed would prove that the claim is false. Shown below claimed is no proof that it is "
                "true, only that these attacks found nothing: what is claimed rests on mathematics, and an audit looks "
                "for mistakes in it and in the program.",
                "The closer shown is to exact, the less room is left for an attack that was not tried.",
            ]
        ),
    ]
    return page(title, "\n".join(parts))


def _known_bad(cases: Sequence[Mapping[str, Any]], plots: Sequence[Path]) -> str:
    title = "Known mistakes, and whether the audit catches them"
    missed = {i: "bad" for i, case in enumerate(cases) if not case["caught"]}
    names = ", ".join(f"{cases[i]['name']}" for i in missed)
    bad = paragraph(f"NOT caught: {names}. An audit that misses a known mistake is not to be trusted.", "bad")
    good = paragraph(f"All {len(cases)} known mistakes were caught.", "key")
    rows = [
        (str(c["name"]), _number(c["claimed"]), _number(c["audited"]), str(c.get("unit", "")), _YES[bool(c["caught"])])
        for c in cases
    ]
    explained = [(f"{case['name']}{_by(case)}", _explained(case)) for case in cases if case.get("flaw")]
    parts = [
        f"<h1>{escape(title)}</h1>",
        bad if missed else good,
        *_pictures(plots, "what was claimed against what was audited, case by case"),
        "<h2>Claimed and audited</h2>",
        table(("case", "claimed", "audited", "unit", "caught"), rows, numbers=(1, 2), marked=missed),
        "<h2>What is wrong with each</h2>",
        answers(explained) if explained else paragraph("The file does not say."),
        "<h2>What this means</h2>",
        paragraph(
            "Each case is a mechanism that is less private than it claims, as published or as it is often written. "
            "None of them is a recipe. They are here to show that the audit can fail something: audited is what an "
            "attacker really achieved, in the unit of the claim; where that is a success rate, the claim is what blind "
            "guessing reaches."
        ),
    ]
    return page(title, "\n".join(parts))


def _by(case: Mapping[str, Any]) -> str:
    return f" ({case['paper']})" if case.get("paper") else ""


def _explained(case: Mapping[str, Any]) -> str:
    """What is wrong, why that leaks, and what the attack saw, each where the file says it."""
    said = [str(case[key]).rstrip(".") for key in ("flaw", "proof", "detail") if case.get(key)]
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in said)


_YES = {True: "yes", False: "no"}
_BROKEN, _FALSE, _FINE = "BROKEN", "claim false", "not broken"


def _verdict(report: Mapping[str, Any]) -> str:
    """As the report says, and never better than its own numbers."""
    lower, claimed = float(report["epsilon_lower"]), float(report["epsilon_claimed"])
    exact = report.get("epsilon_exact")
    if report.get("broken") or lower > (claimed if exact is None else float(exact)) * (1 + 1e-9):
        return _BROKEN
    return _FALSE if lower > claimed * (1 + 1e-9) else _FINE


def _found(reports: Sequence[Mapping[str, Any]], verdicts: Sequence[str]) -> list[str]:
    """The outcome in a sentence or two, the worst first."""

    def named(wanted: str) -> str:
        return ", ".join(f"`{r['recipe']}`" for r, verdict in zip(reports, verdicts, strict=True) if verdict == wanted)

    said = []
    if _BROKEN in verdicts:
        said.append(f"Broken: {named(_BROKEN)}. More was found than exact accounting allows: do not use it.")
    if _FALSE in verdicts:
        said.append(f"False as claimed: {named(_FALSE)}. More was found than is claimed, though no more than is exact.")
    if said:
        return [paragraph(text, "bad") for text in said]
    count = "The claim was" if len(reports) == 1 else f"All {len(reports)} claims were"
    return [paragraph(f"{count} not broken: no attack gained more than is claimed.", "key")]


def _sensitivities(reports: Sequence[Mapping[str, Any]]) -> str:
    """How far two records were found to move each sum, beside what its noise was made for."""
    found = [(report["recipe"], entry) for report in reports for entry in report.get("sensitivities") or ()]
    if not found:
        return ""
    rows = [
        (f"`{recipe}`, {e['release']}", str(e["adjacency"]), _number(e["found"]), _number(e["declared"]))
        for recipe, e in found
    ]
    marked = {i: "bad" for i, (_, e) in enumerate(found) if float(e["found"]) > float(e["declared"]) * (1 + 1e-9)}
    columns = ("release", "neighbours", "found", "declared")
    return "<h2>How far one person moves each sum</h2>" + table(
        columns, rows, caption="The largest change that the search found", numbers=(2, 3), marked=marked
    )


def _settings(reports: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        f"{report['recipe']}: {report['trials']:,} trials, delta {report['delta']:g}, confidence "
        f"{100 * report['confidence']:g} %."
        for report in reports
    ]
    shared = {line.partition(": ")[2] for line in lines}
    return f"Each: {shared.pop()}" if len(shared) == 1 else " ".join(lines)


def _pictures(plots: Sequence[Path], what: str) -> list[str]:
    return [picture(path, f"Plot {path.stem}: {what}. The table below has the numbers.") for path in plots]


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return "infinite" if math.isinf(float(value)) else f"{float(value):.4g}"


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"`{path}` is not JSON; it is damaged or was not written by `privrl audit`.") from error


def _checked(entries: Any, keys: Sequence[str]) -> list[Mapping[str, Any]]:
    """The entries, if they are objects with these keys."""
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, Mapping) for entry in entries):
        raise ValueError(f"`{AUDIT}` holds no audits; it should be one object, a list of them, or `cases`.")
    missing = {f"`{key}`" for entry in entries for key in keys if key not in entry}
    odd = {f"`{key}`" for entry in entries for key in _NUMBERS if not _is_number(entry.get(key))}
    for names, wrong in ((missing, "`{0}` lacks {1}"), (odd, "In `{0}` {1} should be numbers")):
        if names:
            what = wrong.format(AUDIT, ", ".join(sorted(names)))
            raise ValueError(f"{what}; it is damaged or was not written by `privrl audit`.")
    return entries


def _is_number(value: Any) -> bool:
    """A number, "inf" (JSON has no infinity), or nothing."""
    return value is None or value == "inf" or (isinstance(value, int | float) and not isinstance(value, bool))
