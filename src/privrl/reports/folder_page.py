"""Find out what a folder contains and render its page: a saved result, a pilot, an evaluation, an audit or a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from privrl.privacy.shared_budget import EarlierStudy
from privrl.reports.audit_page import AUDIT, render_audit
from privrl.reports.display_names import Names
from privrl.reports.evaluation_page import render_certified_evaluation
from privrl.reports.figure_page import VERDICT, render_figure
from privrl.reports.pilot_page import render_pilot
from privrl.reports.result_page import render_result
from privrl.studies.results.binding import EVALUATION
from privrl.studies.results.certified_evaluation import load_evaluation
from privrl.studies.results.pilot_record import PILOT, PilotRecord
from privrl.studies.results.result import Result

Content = Literal["result", "pilot", "evaluation", "audit", "figure"]

_CONTENTS: dict[str, Content] = {
    PILOT: "pilot",
    "certificate.json": "result",
    EVALUATION: "evaluation",
    AUDIT: "audit",
    VERDICT: "figure",
}


def detect_content(folder: str | Path) -> Content:
    """Return what a folder contains.

    Raises:
        ValueError: the folder does not exist or contains nothing that has a page. The message suggests folders that do.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"There is no folder `{folder}`. Give one that `privrl fit --out` or `Result.save` wrote.")
    for name, content in _CONTENTS.items():
        if (folder / name).is_file():
            return content
    inside = [path for path in sorted(folder.iterdir()) if any((path / name).is_file() for name in _CONTENTS)]
    meant = f" Did you mean {' or '.join(f'`{path}`' for path in inside[:5])}?" if inside else ""
    raise ValueError(f"`{folder}` contains none of {', '.join(f'`{name}`' for name in _CONTENTS)}.{meant}")


def render_folder(
    folder: str | Path,
    problems: Sequence[str] = (),
    names: Names | None = None,
    *,
    show_withheld: bool = False,
    earlier: Sequence[EarlierStudy] | None = None,
) -> str:
    """Render the page of a folder.

    Arguments:
        folder: a saved result, the record of a pilot, an evaluation alone, an audit or a reproduced figure.
        problems: what is wrong with the certificate; shown before everything else.
        names: the names of the states and actions of a result.
        show_withheld: show advice that was withheld, marked as not to be used.
        earlier: the studies of the same people that share a budget with a result, if known.
    """
    content = detect_content(folder)
    if content == "pilot":
        return render_pilot(PilotRecord.load(folder), problems)
    if content == "result":
        result = Result.load(folder)
        return render_result(result, folder, problems, names, show_withheld=show_withheld, earlier=earlier)
    if content == "evaluation":
        evaluation = load_evaluation(Path(folder))
        return render_certified_evaluation(evaluation, problems, names, show_withheld=show_withheld)
    return render_audit(folder) if content == "audit" else render_figure(folder)
