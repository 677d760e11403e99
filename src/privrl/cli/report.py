"""`privrl report`: a saved result, a reproduced figure or an audit as one HTML file to look at and hand on."""

from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from privrl.cli.options.budget_options import BudgetLogOption, BudgetOptions, ListedBudgetOption
from privrl.cli.options.grouped import grouped
from privrl.cli.options.study_options import NameOptions
from privrl.cli.options.targets import OverwriteOption, check_file
from privrl.cli.options.trusted_modules import TrustOption, trust_modules
from privrl.cli.output import JsonOption, complain, emit, say
from privrl.privacy.accounting.signature import read_public_key
from privrl.reports.folder_page import Content, detect_content, render_folder
from privrl.studies.results.binding import SavedFiles
from privrl.studies.results.certification import certify, certify_folder
from privrl.studies.results.pilot_record import PilotRecord
from privrl.writing import check_outside, whole_file


@grouped
def report(
    context: typer.Context,
    named: NameOptions,
    folder: Annotated[
        Path, typer.Argument(help="A saved result, a pilot, or a folder of `privrl evaluate`, `reproduce` or `audit`.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write, ending in .html (beside the folder unless given).")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="PEM file: everything shown must be signed by its owner.")
    ] = None,
    show_withheld: Annotated[
        bool, typer.Option("--show-withheld", help="Show advice that was withheld, marked as not to be used.")
    ] = False,
    budget: ListedBudgetOption = None,
    budget_log: BudgetLogOption = None,
    trust: TrustOption = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Write one HTML page about a saved result, a pilot, a figure or an audit; it needs no network to be read."""
    trust_modules(trust)
    kind = detect_content(folder)
    file = _file(folder) if out is None else out
    check_outside(file, [folder])  # a folder with a certificate holds the files that this names, and no other
    check_file(context, file, overwrite=overwrite, endings=(".html", ".htm"))
    key = None if public_key is None else read_public_key(public_key)
    problems, shared = _problems(folder, kind, key), BudgetOptions(budget, budget_log).shared
    if shared is not None and kind != "result":
        raise ValueError(
            f"`--budget` lists earlier studies of the people of a saved result, and `{folder}` is not one."
        )
    earlier = None if shared is None else shared.studies()
    with whole_file(file, overwrite=overwrite) as scratch:
        page = render_folder(folder, problems, named.read(), show_withheld=show_withheld, earlier=earlier)
        scratch.write_text(page, encoding="utf-8")
    if json:
        emit({"folder": str(folder), "kind": kind, "report": str(file), "problems": problems})
    else:
        say(f"The report is in {file}: open it in a browser.")
    if problems:
        complain("The certificate does NOT hold:", *(f"- {problem}" for problem in problems))
        raise typer.Exit(1)


def _problems(folder: Path, kind: Content, key: Ed25519PublicKey | None) -> list[str]:
    """What `privrl certify` finds; the page of a result that is not private says that anyway.

    A file that no certificate names, or that no signature covers, is never shown: there is no page then.
    """
    if kind == "pilot":
        record = PilotRecord.load(folder)
        pilot = certify(record.certificate, None, public_key=key, allow_non_private=True)
        if key is not None and not pilot.authenticated:
            raise ValueError(f"No report was written. {' '.join(pilot.problems)}")
        return pilot.problems
    if kind not in ("result", "evaluation"):
        if key is not None:
            raise ValueError(f"`--public-key` is for a saved result or evaluation, and `{folder}` is neither.")
        return []
    verdict = certify_folder(SavedFiles.read(folder), public_key=key, allow_non_private=True)
    if not verdict.files_ok or (key is not None and not verdict.authenticated):
        raise ValueError(f"No report was written. {' '.join(verdict.problems)}")
    return verdict.problems


def _file(folder: Path) -> Path:
    """The page of a folder, next to it."""
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}.html")
