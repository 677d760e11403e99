"""Reports: one HTML file of a demo study, a saved result, a reproduced figure or an audit.

`page.py` has the frame and its parts, `page_result.py`, `page_figure.py` and `page_audit.py` the pages of their
kinds; here are the demo's page and the choice between them.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Literal

from privrl.plots.charts import draw_values
from privrl.plots.means import format_mean
from privrl.plots.style import to_svg
from privrl.reports.names import Names
from privrl.reports.page import answers, code, drawing, page, paragraph, table
from privrl.reports.page_audit import AUDIT, audit_page
from privrl.reports.page_comparison import evaluation_page
from privrl.reports.page_figure import VERDICT, figure_page
from privrl.reports.page_result import result_page, spending, usage
from privrl.reports.study import DemoStudy
from privrl.reports.words import guesses, in_words
from privrl.studies.offline.evaluate import load_evaluation
from privrl.studies.results.result import EVALUATION, Result

Content = Literal["result", "evaluation", "audit", "figure"]

_CONTENTS: dict[str, Content] = {
    "certificate.json": "result",
    EVALUATION: "evaluation",
    AUDIT: "audit",
    VERDICT: "figure",
}


def content_of(folder: str | Path) -> Content:
    """What a folder holds: a saved result, an evaluation alone, an audit or a reproduced figure; an error that says
    what to do otherwise."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"There is no folder `{folder}`. Give one that `privrl fit --out` or `Result.save` wrote.")
    for name, content in _CONTENTS.items():
        if (folder / name).is_file():
            return content
    inside = [path for path in sorted(folder.iterdir()) if any((path / name).is_file() for name in _CONTENTS)]
    meant = f" Did you mean {' or '.join(f'`{path}`' for path in inside[:5])}?" if inside else ""
    raise ValueError(f"`{folder}` holds none of {', '.join(f'`{name}`' for name in _CONTENTS)}.{meant}")


def folder_page(folder: str | Path, problems: Sequence[str] = (), names: Names | None = None) -> str:
    """The page of whatever the folder holds.

    Arguments:
        folder: a saved result, an evaluation alone, an audit or a reproduced figure.
        problems: what is wrong with the certificate; shown before everything else.
        names: what a result's states and actions are called.
    """
    content = content_of(folder)
    if content == "result":
        return result_page(Result.load(folder), folder, problems, names)
    if content == "evaluation":
        return evaluation_page(load_evaluation(Path(folder)), problems, names)
    return audit_page(folder) if content == "audit" else figure_page(folder)


def study_page(study: DemoStudy) -> str:
    """The report of a demo study."""
    title = "A private treatment policy: what it is worth, and what it reveals"
    certificate = study.result.certificate
    parts = [
        f"<h1>{escape(title)}</h1>",
        _summary(study),
        "<h2>What privacy costs</h2>",
        _values(study),
        _table(study),
        "<h2>What the policy reveals</h2>",
        answers(in_words(certificate)),
        "<h2>What the budget was spent on</h2>",
        spending(certificate),
        "<h2>The certificate</h2>",
        code(str(certificate)),
        "<h2>Use the policy</h2>",
        _use(study),
    ]
    return page(title, "\n".join(parts))


def _summary(study: DemoStudy) -> str:
    levels = study.baselines
    return (
        paragraph(
            f"From {study.episodes:,} simulated ICU stays of sepsis patients, treated as doctors treat them, privrl "
            "learned which treatment to choose in each condition, and added enough noise that no single stay can be "
            "read back from the result."
        )
        + f'<p class="key">Under the private policy (epsilon&nbsp;=&nbsp;{study.epsilon:g}) '
        f"<b>{100 * study.value:.1f}&nbsp;%</b> of simulated patients survive, against "
        f"{100 * levels['behaviour']:.1f}&nbsp;% under the doctors who were observed and "
        f"{100 * levels['optimal']:.1f}&nbsp;% at best. Somebody who knows all the other stays and has to guess which "
        f"of two records was one patient's is right {escape(guesses(study.result.certificate))}.</p>"
        + paragraph(
            "This is a benchmark world estimated from hospital records (ICU-Sepsis, Choudhary, Gupta and Thomas 2024). "
            "It shows how learning under privacy behaves. It must not guide the treatment of anybody.",
            "warn",
        )
    )


def _values(study: DemoStudy) -> str:
    lines = {
        "optimal": study.baselines["optimal"],
        "no privacy": sum(study.non_private) / len(study.non_private),
        "most frequent": study.baselines["mode"],
        "doctors": study.baselines["behaviour"],
        "random": study.baselines["uniform"],
    }
    figure = draw_values(study.private, study.epsilon, lines, "share of patients who survive")
    described = "Share of patients who survive against epsilon, between the levels of other policies"
    runs = f"{study.seeds} repetition{'s' if study.seeds > 1 else ''}"
    return drawing(
        to_svg(figure, described),
        f"Blue: private policies, mean of {runs} with two standard errors; the ring marks the budget of the saved "
        "policy. “Most frequent” always does what doctors do most often in a condition, and needs no learning at all.",
    )


def _table(study: DemoStudy) -> str:
    found = study.rows()
    rows = [(name, format_mean(values), f"{100 * gap:.0f} %") for name, values, gap in found]
    chosen = {i: "chosen" for i, (name, _, _) in enumerate(found) if name == study.chosen_row}
    return table(("policy", "survive", "gap closed"), rows, numbers=(1, 2), marked=chosen) + paragraph(
        "Gap closed: 0 % is what doctors reach, 100 % the best possible. Values are exact, computed from the simulated "
        "world; repetitions draw new stays and new, seeded noise. On real patients nobody knows these numbers, and "
        "estimating them from the same stays would cost budget too.",
        "small",
    )


def _use(study: DemoStudy) -> str:
    source = study.result.certificate.noise_source.split(",")[0]
    return paragraph(
        "The folder `policy` beside this file holds the policy and `certificate.json`, nothing about any stay. Its "
        f"noise came from {source}, as it should for real people. In this folder:"
    ) + usage("policy", "result.policy.action(state=42, step=0)   # needs none of the stays")
