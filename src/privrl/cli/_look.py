"""`privrl list`, `certify` and `cite`: what there is, whether a certificate adds up, and whom to thank."""

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from privrl._citations import citation, citation_keys
from privrl.cli._options import JsonOption
from privrl.cli._output import complain, emit, say, show_table
from privrl.envs import names
from privrl.experiments.figures import figures
from privrl.privacy import Certificate, mu_of, read_certificate, rho_of
from privrl.recipes import recipes

_TOLERANCE = 1e-6


class Kind(StrEnum):
    """What can be listed."""

    recipes = "recipes"
    envs = "envs"
    figures = "figures"


def list_(
    what: Annotated[Kind, typer.Argument(help="recipes, envs or figures")],
    json: JsonOption = False,
) -> None:
    """List what there is, with one line each."""
    entries: list[dict[str, str]]
    if what is Kind.recipes:
        entries = [
            {"name": r.name, "family": r.family, "trust": r.trust, "summary": r.summary} for r in recipes.values()
        ]
    elif what is Kind.envs:
        entries = [{"name": name, "summary": summary} for name, summary in names().items()]
    else:
        entries = [{"name": f.name, "paper": f.paper, "summary": f.summary} for f in figures.values()]
    if json:
        emit({what.value: entries})
    else:
        show_table(what.value, list(entries[0]), [list(entry.values()) for entry in entries])


def certify(
    folder: Annotated[Path, typer.Argument(help="A folder that `privrl fit --out` or `Result.save` wrote.")],
    json: JsonOption = False,
) -> None:
    """Recompute epsilon from a saved ledger and compare it with the certificate (exit code 1 if they differ)."""
    path = folder / "certificate.json"
    if not path.is_file():
        inner = f" Did you mean `{folder / 'policy'}`?" if (folder / "policy" / "certificate.json").is_file() else ""
        raise ValueError(f"There is no `certificate.json` in `{folder}`.{inner}")
    certificate = read_certificate(path.read_text())
    recomputed, problems = checked(certificate)
    content = certificate.to_json()
    if json:
        emit(
            {
                "folder": str(folder),
                "epsilon": content["epsilon"],
                "recomputed": "inf" if recomputed == math.inf else recomputed,
                "delta": content["delta"],
                "matches": not problems,
                "problems": problems,
                "certificate": content,
            }
        )
    else:
        if recomputed is not None:
            say(str(certificate))
            say(f"Recomputed from its events: epsilon = {recomputed:.6g} at delta = {certificate.delta:g}.")
        if not problems:
            say("The certificate agrees with its events.")
    if problems:
        complain("\n".join(["The certificate does NOT hold:", *(f"- {problem}" for problem in problems)]))
        raise typer.Exit(1)


def checked(certificate: Certificate) -> tuple[float | None, list[str]]:
    """Epsilon from the events alone, and everything in the certificate that disagrees with them."""
    try:
        recomputed = certificate.recomputed()
        sampled = any(event.sampling < 1 for event in certificate.events)
        truth = {
            "epsilon": (certificate.epsilon, recomputed),
            "mu": (certificate.mu, mu_of(certificate.events)),
            "rho": (certificate.rho, None if sampled else rho_of(certificate.events)),
        }
        problems = [
            f"`{name}` is written as {_number(written)} and follows as {_number(follows)}."
            for name, (written, follows) in truth.items()
            if not _same(written, follows)
        ]
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        return None, [str(error) if isinstance(error, ValueError) else "The list of releases is damaged."]
    if certificate.notion != "none" and math.isinf(recomputed):
        problems.append(f"It calls itself `{certificate.notion}`, but something was released without noise.")
    return recomputed, problems


def _same(written: float | None, follows: float | None) -> bool:
    if written is None or follows is None:
        return written is follows
    return written == follows or math.isclose(written, follows, rel_tol=_TOLERANCE)


def _number(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"


def cite(
    recipe: Annotated[str, typer.Argument(help="A name from `privrl list recipes`.")],
    json: JsonOption = False,
) -> None:
    """Print BibTeX for what stands behind a recipe."""
    if json:
        emit({"recipe": recipe, "keys": list(citation_keys(recipe)), "bibtex": citation(recipe)})
    else:
        say(citation(recipe))
