"""The report of the sepsis demo."""

from privrl.plots.charts import draw_values
from privrl.plots.means import format_mean
from privrl.privacy.noise.sources import ORIGIN_WORDS
from privrl.reports.certificate_section import render_budget
from privrl.reports.certificate_text import describe_guesses, explain_certificate
from privrl.reports.demo_study import DemoStudy
from privrl.reports.rendering import HtmlTable, embed_plot, render_page


def render_demo(study: DemoStudy) -> str:
    """Render the report of a demo study."""
    certificate, rows = study.result.certificate, study.list_policies()
    lines = {
        "optimal": study.baselines["optimal"],
        "no privacy": sum(study.non_private) / len(study.non_private),
        "most frequent": study.baselines["mode"],
        "doctors": study.baselines["behaviour"],
        "random": study.baselines["uniform"],
    }
    return render_page(
        "demo.html",
        title="A private treatment policy: what it is worth and what it reveals",
        study=study,
        guesses=describe_guesses(certificate),
        plot=embed_plot(
            draw_values(study.private, study.epsilon, lines, "share of patients who survive"),
            "Share of patients who survive against epsilon, between the levels of other policies",
        ),
        table=HtmlTable(
            ("policy", "survive", "gap closed"),
            [(name, format_mean(values), f"{100 * gap:.0f}%") for name, values, gap in rows],
            numbers=(1, 2),
            marked={i: "chosen" for i, (name, _, _) in enumerate(rows) if name == study.chosen_row},
        ),
        explanation=explain_certificate(certificate),
        budget=render_budget(certificate),
        certificate=str(certificate),
        noise=ORIGIN_WORDS[certificate.noise_source].split(",")[0],
    )
