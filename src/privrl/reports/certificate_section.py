"""The parts of a page that show a certificate: statements, warnings, the budget, the releases, and the bounds."""

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from privrl.plots.charts import draw_shares
from privrl.privacy.accounting.certificate import Certificate
from privrl.reports.certificate_facts import is_private, is_simulated, share_budget
from privrl.reports.certificate_text import describe_guesses, describe_releases, explain_certificate
from privrl.reports.rendering import HtmlTable, embed_plot, render


@dataclass(frozen=True)
class CertificateParts:
    """What templates show of a certificate.

    Attributes:
        private: whether it guarantees anything.
        guesses: how often an attacker is right, as part of a sentence.
        statements: what the study team states about the study.
        warnings: what a reader must know first.
        notes: how the study was run, for readers of the certificate.
        explanation: questions and answers.
        budget: how the budget was spent.
        releases, bounds: tables, or `None` if there is nothing to show.
        has_disjoint, has_several: whether shares add up to more than 1, and whether a release had several noise scales.
    """

    private: bool
    guesses: str
    statements: HtmlTable | None
    warnings: list[str]
    notes: list[str]
    explanation: list[tuple[str, str]]
    budget: Markup
    releases: HtmlTable | None
    bounds: HtmlTable | None
    has_disjoint: bool
    has_several: bool

    @classmethod
    def from_certificate(cls, certificate: Certificate) -> "CertificateParts":
        """Collect the parts; `certificate.unit` should be a noun."""
        return cls(
            private=is_private(certificate),
            guesses=describe_guesses(certificate) if is_private(certificate) else "",
            statements=_table_of_statements(certificate),
            warnings=_collect_warnings(certificate),
            notes=_list_notes(certificate),
            explanation=explain_certificate(certificate),
            budget=render_budget(certificate),
            releases=_table_of_releases(certificate),
            bounds=_table_of_bounds(certificate),
            has_disjoint=sum(share_budget(certificate).values()) > 1 + 1e-9,
            has_several=any(len(release["noise"]) > 1 for release in certificate.releases),
        )


def render_budget(certificate: Certificate) -> Markup:
    """Draw the share of each release as a bar, and describe those releases that are known."""
    parts = share_budget(certificate)
    plot = None
    if parts:
        plot = embed_plot(draw_shares(parts), "Share of the privacy budget that each release was given")
    described = [f"`{name}`: {text}" for name, text in describe_releases(certificate).items()]
    return render("budget.html", plot=plot, unit=certificate.unit, described=described)


def _table_of_statements(certificate: Certificate) -> HtmlTable | None:
    rows = [(name.capitalize(), text) for name, text in certificate.stated.items()]
    caption = "Supplied by the study team; not verified by privrl"
    return HtmlTable(("subject", "statement"), rows, caption) if rows else None


def _collect_warnings(certificate: Certificate) -> list[str]:
    found = []
    if is_simulated(certificate):
        found.append(
            "The noise came from a seed and can be reproduced. This is a simulation and protects no real person."
        )
    if claimed := certificate.claimed:
        found.append(
            f"This is noise as published. {claimed['source']} claims epsilon = {claimed['epsilon']:.4g}; exact "
            f"accounting gives {certificate.epsilon:.4g}."
        )
    return found


def _list_notes(certificate: Certificate) -> list[str]:
    """The notes as sentences. They are about how the study was run, so they stand with the certificate."""
    notes = [note.rstrip(".") for note in certificate.notes]
    return [f"{note[:1].upper()}{note[1:]}." for note in notes]


def _table_of_releases(certificate: Certificate) -> HtmlTable | None:
    """Every release with its noise and its share of the budget."""
    parts = share_budget(certificate)
    rows = []
    for release in certificate.releases:
        noise = release["noise"][-1] if release["noise"] else None
        burnt = release.get("burnt", 0)
        rows.append(
            (
                str(release["name"]),
                f"{release['counted']:,} of {release['declared']:,}" + (f", {burnt:,} burnt" if burnt else ""),
                f"{noise['sensitivity']:.4g}" if noise else "-",
                f"{noise['scale']:.4g}" if noise else "-",
                f"{100 * parts[release['name']]:.1f}%" if release["name"] in parts else "-",
            )
        )
    columns = ("release", "made", "sensitivity", "noise scale", "share")
    caption = "Every release, declared before the first record was read"
    return HtmlTable(columns, rows, caption, numbers=(1, 2, 3, 4)) if rows else None


def _table_of_bounds(certificate: Certificate) -> HtmlTable | None:
    rows = [(str(name), _format_bound(value)) for name, value in certificate.limits.items()]
    return HtmlTable(("bound", "value"), rows, "Public limits, chosen without looking at the data") if rows else None


def _format_bound(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_format_bound(entry) for entry in value) or "none"
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_format_bound(entry)}" for name, entry in value.items()) or "none"
    return str(value)
