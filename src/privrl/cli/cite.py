"""`privrl cite`: what to cite."""

from typing import Annotated

import typer

from privrl.cli.output import JsonOption, emit, say
from privrl.recipes.citations import OWN_ENTRY, citation, citation_keys
from privrl.recipes.papers import key_of


def cite(
    recipe: Annotated[
        str | None, typer.Argument(help="A name from `privrl list recipes`; without one, privrl itself.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print BibTeX for privrl, or for what stands behind a recipe."""
    if recipe is None:
        keys, entries = [key_of(OWN_ENTRY)], OWN_ENTRY
    else:
        keys, entries = list(citation_keys(recipe)), citation(recipe)
    if json:
        emit({"recipe": recipe, "keys": keys, "bibtex": entries})
    else:
        say(entries)
