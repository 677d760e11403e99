"""Modules of learners and policies outside privrl, which the user of a command trusts."""

from typing import Annotated

import typer

from privrl.studies.learner_settings import trust_classes

TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        metavar="MODULE",
        help="Import this module: its learners are certified, and its policies loaded, by its code. May be repeated.",
    ),
]


def trust_modules(modules: list[str] | None) -> None:
    """Imports the modules of `--trust`."""
    for module in modules or ():
        trust_classes(module)
