"""`privrl report`: a saved result, a reproduced figure or an audit as one HTML file to look at and hand on."""

from pathlib import Path
from typing import Annotated

import typer

import privrl
from privrl.cli.options.grouped import grouped
from privrl.cli.options.study_options import NameOptions
from privrl.cli.options.targets import OverwriteOption, check_file
from privrl.cli.output import JsonOption, complain, emit, say
from privrl.reports.folder_page import Content, detect_content, render_folder
from privrl.studies.offline.evaluate import load_evaluation
from privrl.studies.results.certify import certify_result
from privrl.studies.results.result import Result
from privrl.writing import check_outside, whole_file


@grouped
def report(
    context: typer.Context,
    named: NameOptions,
    folder: Annotated[
        Path, typer.Argument(help="A saved result, or a folder of `privrl evaluate`, `reproduce` or `audit`.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write, ending in .html (beside the folder unless given).")
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Write one HTML page about a saved result, a reproduced figure or an audit; it needs no network to be read."""
    kind = detect_content(folder)
    file = _file(folder) if out is None else out
    check_outside(file, [folder])  # a folder with a certificate holds the files that this names, and no other
    check_file(context, file, overwrite=overwrite, endings=(".html", ".htm"))
    problems = _problems(folder, kind)
    with whole_file(file, overwrite=overwrite) as scratch:
        scratch.write_text(render_folder(folder, problems, named.read()), encoding="utf-8")
    if json:
        emit({"folder": str(folder), "kind": kind, "report": str(file), "problems": problems})
    else:
        say(f"The report is in {file}: open it in a browser.")
    if problems:
        complain("\n".join(["The certificate does NOT hold:", *(f"- {problem}" for problem in problems)]))
        raise typer.Exit(1)


def _problems(folder: Path, kind: Content) -> list[str]:
    """What `privrl certify` finds; that a result is not private is said on its page anyway."""
    if kind == "result":
        return certify_result(Result.load(folder), allow_non_private=True).problems
    if kind == "evaluation":  # its policy is not beside it
        checks = privrl.certify(load_evaluation(folder).certificate, None, allow_non_private=True).checks
        return [check.reason for check in checks if not check.ok and check.name != "policy"]
    return []


def _file(folder: Path) -> Path:
    """The page of a folder, next to it."""
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}.html")
