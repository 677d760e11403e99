"""The operator's page: how every study stands, in one HTML document without a script.

What it may show is decided in `status.py`; nothing else is read here.
"""

import bisect
from collections.abc import Sequence
from html import escape

from privrl.privacy.accounting.certificate import Certificate
from privrl.reports.certificate_text import explain_certificate
from privrl.reports.page import answers, drawing, page, paragraph, table
from privrl.service.probes import LOOP, WRITER
from privrl.service.refusals import REASONS
from privrl.service.status import Quantiles, ServiceStatus, StudyStatus

_WIDTH, _HEIGHT, _LABEL = 720, 74, 15
_CLOSED, _OPEN, _LINE, _INK = "#0072B2", "#E8EEF3", "#FFFFFF", "#1A1A1A"
_MOST_LINES = 120  # blocks beyond which the lines between them would hide them
_STATES = {
    "starting": ("warn", "The study is being opened; requests are refused with `starting`."),
    "ready": ("key", "The study takes people."),
    "paused": ("warn", "The study is paused: nobody new and no record is taken. Clocks and deadlines go on."),
    "purged": ("warn", "The study has ended: its raw sums are gone, and what was released stays."),
    "failed": (
        "bad",
        "The store cannot be used, and requests are refused with `unavailable`. The log of the process says why, as "
        "does `privrl serve check`. What is below is as it was when the store was last read.",
    ),
}
_WAITS = {LOOP: "any request, for its turn", WRITER: "a ticket, a record or a report, for its commit"}


def operator_page(status: ServiceStatus) -> str:
    """The page of a service."""
    parts = ["<h1>Studies of this service</h1>"]
    if len(status.studies) > 1:
        parts.append(_overview(status.studies))
    parts += [_study(one, status.seconds) for one in status.studies]
    if status.refusals:
        parts += ["<h2>Requests that named no study</h2>", _refusals(status.refusals)]
    parts.append(
        paragraph(
            "Nothing on this page depends on anybody's record but through what was released: how many people were "
            "counted in a central study is secret, and what apps ask for people is neither counted nor timed.",
            "small",
        )
    )
    return page("Studies of this service", "\n".join(parts))


def _overview(studies: Sequence[StudyStatus]) -> str:
    rows = [
        [one.name, one.kind, one.state, _tickets(one), _of(one.plan, one.users and len(one.blocks))] for one in studies
    ]
    marked = {i: "bad" for i, one in enumerate(studies) if one.state == "failed"}
    return table(["study", "kind", "state", "tickets", "blocks closed"], rows, numbers=(3, 4), marked=marked)


def _study(one: StudyStatus, shared: dict[str, Quantiles]) -> str:
    kind, words = _STATES[one.state]
    parts = [f"<h2>{escape(one.name)}</h2>", paragraph(words, kind)]
    parts.append(drawing(_blocks(one), _progress(one)))
    parts += ["<h3>Budget</h3>", _budget(one)]
    parts += ["<h3>Refused requests</h3>", _refusals(one.refusals)]
    parts += ["<h3>Times</h3>", _times(one, shared)]
    parts += ["<h3>Keys</h3>", _keys(one)]
    if one.certificate:
        parts += ["<h3>Certificate</h3>", _certificate(Certificate.from_json(one.certificate))]
    return "\n".join(parts)


def _certificate(certificate: Certificate) -> str:
    made = [f"{release['name']}: {release['counted']} of {release['declared']}" for release in certificate.releases]
    words = (
        f"epsilon = {certificate.epsilon:.4g} at delta = {certificate.delta:.3g}, {certificate.notion} privacy, "
        f"neighbours {certificate.adjacency}. Released so far: {'; '.join(made)}. Opened {certificate.opened}."
    )
    details = f"<details><summary>In plain words</summary>{answers(explain_certificate(certificate))}</details>"
    return paragraph(words) + details


def _progress(one: StudyStatus) -> str:
    counted = "" if one.kind == "local" else " Who has arrived is public; how many records were counted is not."
    if one.users is None:
        return (
            f"{one.plan:,} blocks are closed, so plan {one.plan:,} is out; the next release is in epoch {one.epoch}. "
            f"{one.tickets:,} tickets were handed out. How many people will come is not fixed: there are "
            f"{one.blocks[-1]:,} places.{counted}"
        )
    handed = f"{one.tickets:,} tickets were handed out for {one.users:,} places.{counted}"
    if one.kind == "local":
        some = f"{one.tickets:,} so far, for {one.users:,} {one.counting}"
        handed = f"Numbers of tickets are reserved a thousand at a time: {some}."
    return f"{one.plan:,} of {len(one.blocks):,} blocks are closed, so plan {one.plan:,} is out. {handed}"


def _tickets(one: StudyStatus) -> str:
    """How many were handed out; devices that have one need not report, and numbers are reserved by the thousand."""
    return f"{one.tickets:,} reserved" if one.kind == "local" else _of(one.tickets, one.users)


def _of(some: int, of_all: int | None) -> str:
    return f"{some:,}" if of_all is None else f"{some:,} of {of_all:,}"


def _until(one: StudyStatus) -> list[int]:
    """The ends of the blocks that are drawn: all, or those up to the one after the next where there is no known end."""
    if one.users is not None:
        return one.blocks
    return one.blocks[: max(one.plan, bisect.bisect_right(one.blocks, one.tickets)) + 2]


def _blocks(one: StudyStatus) -> str:
    """The blocks as parts of a bar, closed ones filled, with a mark at the tickets that were handed out."""
    ends = [0, *_until(one)]
    scale = _WIDTH / ends[-1]
    closed = ends[min(one.plan, len(one.blocks))] * scale
    lines = [
        f'<line x1="{end * scale:.1f}" x2="{end * scale:.1f}" y1="24" y2="48" stroke="{_LINE}"/>'
        for end in (ends[1:-1] if len(ends) <= _MOST_LINES else [])
    ]
    mark = min(one.tickets * scale, _WIDTH)
    side = "start" if mark < 90 else "end" if mark > _WIDTH - 90 else "middle"
    closed_blocks = _of(one.plan, one.users and len(one.blocks))
    words = f"blocks closed: {closed_blocks}; tickets: {_tickets(one)}"
    shapes = [
        f'<rect x="0" y="24" width="{_WIDTH}" height="24" fill="{_OPEN}"/>',
        f'<rect x="0" y="24" width="{closed:.1f}" height="24" fill="{_CLOSED}"/>',
        *lines,
        f'<line x1="{mark:.1f}" x2="{mark:.1f}" y1="19" y2="53" stroke="{_INK}" stroke-width="2"/>',
        _text(mark, 14, side, f"{one.tickets:,} {'reserved' if one.kind == 'local' else 'tickets'}"),
        _text(0, 68, "start", "0"),
        _text(_WIDTH, 68, "end", f"{ends[-1]:,} {one.counting}" + (" and on" if one.users is None else "")),
    ]
    body = "".join(shapes)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(words)}">{body}</svg>'


def _text(x: float, y: int, side: str, words: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-size="{_LABEL}" font-family="system-ui, sans-serif" fill="{_INK}" '
        f'text-anchor="{side}">{escape(words)}</text>'
    )


def _budget(one: StudyStatus) -> str:
    delta = "" if one.delta is None else f", delta = {one.delta:g}"
    if one.kind == "local":
        often = one.max_episodes_per_unit
        reports = "the one report" if often == 1 else f"all {often} reports"
        whose = f"for {reports} of each person, which their own device randomises. The service spends nothing."
        return paragraph(f"Declared: epsilon = {one.epsilon:g}{delta}, {whose}")
    rows = [
        [pool, f"{limit:g}", f"{one.spent.get(pool, 0.0):g}", f"{max(0.0, limit - one.spent.get(pool, 0.0)):g}"]
        for pool, limit in one.declared.items()
    ]
    lost = [f"{count} {state}" for state, count in one.releases.items() if state in ("burnt", "redrawn")]
    blocks = "all blocks" if one.users is not None else "the blocks of every epoch"
    words = (
        f"Declared: epsilon = {one.epsilon:g}{delta}, for everything that is ever released. The noise was set for "
        f"{blocks} at the start, so the guarantee is the same however many are closed."
    )
    parts = [paragraph(words), table(["pool", "declared", "spent", "left"], rows, numbers=(1, 2, 3))]
    if lost:
        parts.append(paragraph(f"Interrupted by a crash: {', '.join(lost)}.", "warn"))
    return "".join(parts)


def _refusals(refusals: dict[str, int]) -> str:
    if not refusals:
        return paragraph("None since this process started.")
    rows = [[f"`{reason}`", REASONS[reason][1], f"{count:,}"] for reason, count in sorted(refusals.items())]
    return table(["reason", "which says", "since the start"], rows, numbers=(2,))


def _times(one: StudyStatus, shared: dict[str, Quantiles]) -> str:
    waits = [(_WAITS[name], found[name]) for name, found in ((LOOP, shared), (WRITER, one.seconds)) if name in found]
    measured = waits + [(f"`{name}`", q) for name, q in one.seconds.items() if name not in _WAITS]
    parts = []
    if measured:
        rows = [[name, _milliseconds(q.p50), _milliseconds(q.p99)] for name, q in measured]
        parts.append(table(["what waits, or is answered", "p50", "p99"], rows, numbers=(1, 2)))
    else:
        parts.append(paragraph("Too few measurements yet; the first come a minute after the start."))
    if one.people_per_commit is not None:
        p50, p99 = one.people_per_commit.p50, one.people_per_commit.p99
        parts.append(paragraph(f"Devices that reported in one commit: p50 {p50:g}, p99 {p99:g}."))
    return "".join(parts)


def _milliseconds(seconds: float) -> str:
    return f"{1_000 * seconds:.2g} ms" if seconds < 0.0995 else f"{1_000 * seconds:,.0f} ms"


def _keys(one: StudyStatus) -> str:
    if not one.keys:
        return paragraph(f"None. Make one: `privrl serve key add {one.name}.toml --role app --name NAME`.")
    rows = [[key.name, f"`{key.role}`", key.added, f"{key.people:,}" if key.role == "app" else "-"] for key in one.keys]
    return table(["name", "role", "made", "people since the start"], rows, numbers=(3,))
