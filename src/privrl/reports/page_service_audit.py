"""An audit of a running service as a page: which attacks were tried, and what they found."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from privrl.reports.page import listed, page, paragraph, table

KEYS = ("service", "study", "kind", "attacks")
_ATTACKER = {"local": "a hostile device", "central": "a hostile app"}


def service_audit_page(report: Mapping[str, Any]) -> str:
    """The page of what `privrl audit --service URL --out FOLDER` wrote."""
    attacks = _attacks(report["attacks"])
    title = f"The study {report['study']}, attacked over HTTP"
    broken = [attack for attack in attacks if attack["found"]]
    good = "No attack succeeded. That is not a proof: another attack may do better."
    bad = f"BROKEN: {', '.join(attack['attack'] for attack in broken)}. Stop the service until this is understood."
    rows = [(attack["attack"], f"{attack['tried']:,}", str(len(attack["found"]))) for attack in attacks]
    marked = {i: "bad" for i, attack in enumerate(attacks) if attack["found"]}
    who = _ATTACKER.get(str(report["kind"]), "somebody hostile")
    parts = [
        f"<h1>{escape(title)}</h1>",
        paragraph(bad, "bad") if broken else paragraph(good, "key"),
        paragraph(f"It is a {report['kind']} study at `{report['service']}`, and was attacked as {who} would."),
        table(("attack", "comparisons", "found"), rows, caption="Attacks", numbers=(1, 2), marked=marked),
    ]
    for attack in broken:
        parts += [f"<h2>{escape(attack['attack'])}</h2>", listed([str(line) for line in attack["found"]])]
    return page(title, "\n".join(parts))


def _attacks(content: Any) -> Sequence[Mapping[str, Any]]:
    fine = isinstance(content, list) and all(
        isinstance(one, Mapping)
        and isinstance(one.get("attack"), str)
        and isinstance(one.get("tried"), int)
        and isinstance(one.get("found"), list)
        for one in content
    )
    if not fine:
        raise ValueError("`attacks` of `audit.json` is not a list of attacks with `attack`, `tried` and `found`.")
    return content
