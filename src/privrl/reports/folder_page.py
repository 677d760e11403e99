"""Find out what a folder contains and render its page: a saved result, an evaluation, an audit or a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from privrl.reports.audit_page import AUDIT, render_audit
from privrl.reports.display_names import Names
from privrl.reports.evaluation_page import render_certified_evaluation
from privrl.reports.figure_page import VERDICT, render_figure
from privrl.reports.result_page import render_result
from privrl.studies.results.binding import EVALUATION
from privrl.studies.results.certified_evaluation import load_evaluation
from privrl.studies.results.result import Result

Content = Literal["result", "evaluation", "audit", "figure"]

_CONTENTS: dict[str, Content] = {
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


def render_folder(folder: str | Path, problems: Sequence[str] = (), names: Names | None = None) -> str:
    """Render the page of a folder.

    Arguments:
        folder: a saved result, an evaluation alone, an audit or a reproduced figure.
        problems: what is wrong with the certificate; shown before everything else.
        names: the names of the states and actions of a result.
    """
    content = detect_content(folder)
    if content == "result":
        return render_result(Result.load(folder), folder, problems, names)
    if content == "evaluation":
        return render_certified_evaluation(load_evaluation(Path(folder)), problems, names)
    return render_audit(folder) if content == "audit" else render_figure(folder)
