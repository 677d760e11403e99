"""`privrl report`: a saved result, a reproduced figure or an audit as one HTML file to look at and hand on."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

import privrl
from privrl.cli.options.grouped import grouped
from privrl.cli.options.parsing import JsonOption, check_file
from privrl.cli.options.study_options import NameOptions
from privrl.cli.output import complain, emit, say
from privrl.reports.page import GENERATOR
from privrl.reports.report import Content, content_of, folder_page
from privrl.studies.offline.evaluate import load_evaluation
from privrl.studies.results.certify import certify_result
from privrl.studies.results.result import Result


@grouped
def report(
    named: NameOptions,
    folder: Annotated[
        Path, typer.Argument(help="A saved result, or a folder of `privrl evaluate`, `reproduce` or `audit`.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write, ending in .html (beside the folder unless given).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write one HTML page about a saved result, a reproduced figure or an audit; it needs no network to be read."""
    kind = content_of(folder)
    file = _file(folder, out)
    problems = _problems(folder, kind)
    _write(file, folder_page(folder, problems, named.read()))
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


def _file(folder: Path, out: Path | None) -> Path:
    """Where to write; an earlier report may be replaced, anything else is left alone.

    Not inside the folder unless asked: a saved result holds its own files and nothing else, so that it can be handed
    on and replaced.
    """
    named = folder if folder.name not in ("", "..") else folder.resolve()
    file = named.with_name(f"{named.name}.html") if out is None else out
    check_file("--out", file, (".html", ".htm"))
    mark = f'name="generator" content="{GENERATOR}"'
    if file.exists() and not (file.is_file() and mark in file.read_text(errors="replace")[:1_000]):
        raise ValueError(f"`{file}` exists and is not a report of privrl. Choose another name with `--out`.")
    return file


def _write(file: Path, text: str) -> None:
    """All or nothing: a reader never sees half a page."""
    scratch = file.with_name(f".{file.name}.{secrets.token_hex(8)}.part")
    try:
        with scratch.open("x", encoding="utf-8") as page:  # a new file: a link under this name would not be followed
            page.write(text)
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)
