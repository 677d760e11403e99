"""The operator's page: the status of every study, as one HTML document without scripts.

`status.py` decides what may be shown; this module reads nothing else. The template is `templates/operator.html`.
"""

import base64
import bisect
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from markupsafe import Markup

from privrl.privacy.accounting.certificate import Certificate
from privrl.reports.certificate_text import explain_certificate
from privrl.reports.pilot_page import render_pilot_result
from privrl.reports.rendering import HtmlTable, embed_plot_as_image, render_page
from privrl.service.probes import LOOP, WRITER
from privrl.service.refusals import REASONS
from privrl.service.status import Quantiles, ServiceStatus, StudyStatus
from privrl.studies.results.pilot_record import read_looks

_WIDTH = 720
_MAX_LINES = 120  # lines between more blocks than this would hide the blocks
_STATES = {  # the kind of paragraph, and its text
    "starting": ("warn", "The study is being opened; requests are refused with `starting`."),
    "ready": ("key", "The study accepts people."),
    "paused": ("warn", "The study is paused: it accepts neither people nor records. Deadlines stay as they are."),
    "purged": ("warn", "The study has ended: its raw sums are deleted, and its releases remain."),
    "failed": (
        "bad",
        "The store cannot be used, and requests are refused with `unavailable`. The log of the process and "
        "`privrl serve check` show the reason. The figures below are from the last time that the store was read.",
    ),
}
_WAITS = {LOOP: "any request, waiting for its turn", WRITER: "a ticket, record or report, waiting for its commit"}


def operator_page(status: ServiceStatus) -> str:
    """Render the page of a service."""
    studies = [_ShownStudy(one, status.seconds) for one in status.studies]
    return render_page(
        "operator.html",
        package="privrl.service",
        title="Studies of this service",
        studies=studies,
        overview=_overview(studies) if len(studies) > 1 else None,
        refusals=_refusals(status.refusals),
    )


def page_policy(html: str) -> str:
    """Return the content security policy of a page: it runs nothing, fetches nothing, and cannot be framed."""
    style = html.split("<style>", 1)[1].split("</style>", 1)[0]
    sha256 = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    sources = f"default-src 'none'; style-src 'sha256-{sha256}'; img-src data:"
    return f"{sources}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@dataclass(frozen=True)
class _ShownStudy:
    """One study as the template shows it; `shared` are the waits of all studies."""

    status: StudyStatus
    shared: Mapping[str, Quantiles]

    @property
    def state(self) -> dict[str, str]:
        kind, words = _STATES[self.status.state]
        return {"kind": kind, "words": words}

    @property
    def number(self) -> str:
        return f"{self.status.tickets:,}"

    @property
    def places(self) -> str:
        return f"{self.status.blocks[-1]:,}"

    @property
    def tickets(self) -> str:
        """Issued tickets. Numbers of a local study are reserved, and not every ticket leads to a report."""
        one = self.status
        return f"{self.number} reserved" if one.kind == "local" else _part_of(one.tickets, one.users)

    @property
    def closed(self) -> str:
        one = self.status
        return _part_of(one.closed, None if one.users is None else len(one.blocks))

    @property
    def bar(self) -> dict[str, object]:
        """The blocks as parts of a bar. Closed ones are filled, and a mark shows the issued tickets."""
        one, ends = self.status, self.status.blocks
        if one.users is None:  # no known end: show one block beyond the one that people arrive in
            ends = ends[: max(one.closed, bisect.bisect_right(ends, one.tickets)) + 2]
        scale = _WIDTH / ends[-1]
        mark = min(one.tickets * scale, _WIDTH)
        return {
            "width": _WIDTH,
            "closed": [0, *ends][min(one.closed, len(ends))] * scale,
            "ends": [end * scale for end in ends[:-1]] if len(ends) < _MAX_LINES else [],
            "mark": mark,
            "marked": f"{self.number} {'reserved' if one.kind == 'local' else 'tickets'}",
            "anchor": "start" if mark < 90 else "end" if mark > _WIDTH - 90 else "middle",
            "last": f"{ends[-1]:,} {one.counting}{' and more' if one.users is None else ''}",
        }

    @property
    def budget(self) -> str:
        one = self.status
        return f"epsilon = {one.epsilon:g}" + ("" if one.delta is None else f", delta = {one.delta:g}")

    @property
    def pools(self) -> HtmlTable:
        one = self.status
        spent = {pool: one.spent.get(pool, 0.0) for pool in one.declared}
        rows = [
            [pool, f"{limit:g}", f"{spent[pool]:g}", f"{max(0.0, limit - spent[pool]):g}"]
            for pool, limit in one.declared.items()
        ]
        return HtmlTable(["pool", "declared", "spent", "left"], rows, numbers=(1, 2, 3))

    @property
    def interrupted(self) -> str:
        states = ("burnt", "redrawn")
        return ", ".join(f"{count} {state}" for state, count in self.status.releases.items() if state in states)

    @property
    def refusals(self) -> HtmlTable | None:
        return _refusals(self.status.refusals)

    @property
    def times(self) -> HtmlTable:
        seconds = self.status.seconds
        waits = ((LOOP, self.shared), (WRITER, seconds))
        measured = [(_WAITS[name], found[name]) for name, found in waits if name in found]
        measured += [(f"`{name}`", one) for name, one in seconds.items() if name not in _WAITS]
        rows = [[name, _milliseconds(one.p50), _milliseconds(one.p99)] for name, one in measured]
        return HtmlTable(["request", "p50", "p99"], rows, numbers=(1, 2))

    @property
    def keys(self) -> HtmlTable:
        rows = [
            [key.name, f"`{key.role}`", key.added, key.expires or "-", f"{key.people:,}" if key.role == "app" else "-"]
            for key in self.status.keys
        ]
        return HtmlTable(["name", "role", "added", "expires", "people since the start"], rows, numbers=(4,))

    @property
    def pilot(self) -> Markup | None:
        """What the looks of a pilot have shown, as its report does."""
        shown = self.status.pilot
        if shown is None:
            return None
        record = read_looks(msgspec.to_builtins(shown))
        return render_pilot_result(*record, embed_plot_as_image)

    @property
    def certificate(self) -> dict[str, object] | None:
        if not self.status.certificate:
            return None
        found = Certificate.from_json(self.status.certificate)
        made = [f"{release['name']}: {release['counted']} of {release['declared']}" for release in found.releases]
        summary = (
            f"epsilon = {found.epsilon:.4g} at delta = {found.delta:.3g}, {found.notion} privacy, neighbours "
            f"{found.adjacency}. Released so far: {'; '.join(made)}. Opened {found.opened}."
        )
        return {"summary": summary, "explanation": explain_certificate(found)}


def _overview(studies: list[_ShownStudy]) -> HtmlTable:
    rows = [[one.status.name, one.status.kind, one.status.state, one.tickets, one.closed] for one in studies]
    columns = ["study", "kind", "state", "tickets", "blocks closed"]
    failed = [i for i, one in enumerate(studies) if one.status.state == "failed"]
    return HtmlTable(columns, rows, numbers=(3, 4), marked=dict.fromkeys(failed, "bad"))


def _refusals(refusals: Mapping[str, int]) -> HtmlTable | None:
    rows = [[f"`{reason}`", REASONS[reason][1], f"{count:,}"] for reason, count in sorted(refusals.items())]
    return HtmlTable(["reason", "meaning", "since the start"], rows, numbers=(2,)) if rows else None


def _part_of(some: int, total: int | None) -> str:
    return f"{some:,}" if total is None else f"{some:,} of {total:,}"


def _milliseconds(seconds: float) -> str:
    return f"{1_000 * seconds:.2g} ms" if seconds < 0.0995 else f"{1_000 * seconds:,.0f} ms"
