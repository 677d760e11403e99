"""All recipes as a table at the end of `docs/recipes.md`, from their own entries: a hook of mkdocs."""

from typing import Any

from privrl.recipes.all_recipes import recipes
from privrl.recipes.citations import citation_keys

_TRUSTED = {"none": "not private", "central": "whoever runs it", "shuffle": "a shuffler", "local": "nobody"}


def table() -> str:
    """One row per recipe: its name, what it is, who is trusted, and what it is built on."""
    rows = [
        f"| `{recipe.name}` | {recipe.summary} | {_TRUSTED[recipe.trust]} | {', '.join(citation_keys(recipe.name))} |"
        for recipe in recipes.values()
    ]
    return "\n".join(
        ["", "## All recipes", "", "| recipe | what it is | trusted | cites |", "|---|---|---|---|", *rows]
    )


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs: the page about recipes ends with all of them."""
    return f"{markdown}{table()}\n" if page.file.src_path == "recipes.md" else markdown
