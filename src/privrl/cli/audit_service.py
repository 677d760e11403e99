"""`privrl audit --service URL --study NAME`: attacks a running service over HTTP."""

import time
from pathlib import Path

from privrl.audit.service import ServiceReport, service_attacks
from privrl.audit.service_answers import over_http
from privrl.cli.output import emit, say, show_table, waiting


def audit_service(
    url: str, study: str, key_file: Path | None, seed: int, json: bool
) -> tuple[ServiceReport, dict[str, object]]:
    """Attacks one study, and shows what was found; the report, and the same as JSON."""
    key = "" if key_file is None else key_file.read_text().strip()
    began = time.perf_counter()
    with waiting(f"attacking {study} at {url}"), over_http(url) as send:
        report = service_attacks(send, study, key=key, seed=seed)
    content = {"service": url, **report.to_json(), "seed": seed, "seconds": time.perf_counter() - began}
    if json:
        emit(content)
    else:
        _show(report)
    return report, content


def _show(report: ServiceReport) -> None:
    rows = [(one.attack, f"{one.tried:,}", f"{len(one.found):,}" if one.found else "-") for one in report.attacks]
    show_table(f"{report.study}, a {report.kind} study", ("attack", "comparisons", "found"), rows, numbers=2)
    for finding in report.attacks:
        for line in finding.found:
            say(f"{finding.attack}: {line}.")
    say("BROKEN." if report.broken else "Nothing was found. That is not a proof.")
