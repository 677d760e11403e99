"""All known-bad cases, and a function that runs their attacks."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from privrl.audit.known_bad import (
    contributions,
    evaluation_attacks,
    functional_attacks,
    local_reports,
    noise,
    printed_lq,
    protocols,
    pure_streams,
    return_attacks,
    rounding,
    signed_terms,
    stores,
    trial_attacks,
)
from privrl.audit.known_bad.case import Case

_MODULES = (
    *(noise, printed_lq, contributions, functional_attacks, rounding, protocols, stores, return_attacks),
    *(pure_streams, trial_attacks, local_reports, evaluation_attacks, signed_terms),
)
CASES: tuple[Case, ...] = tuple(case for module in _MODULES for case in module.CASES)


def run_cases(
    cases: Sequence[Case], key: PRNGKeyArray, progress: Callable[[str], None] | None = None
) -> list[dict[str, Any]]:
    """Run the attack of each case at its own size, with a key of its own; `progress` gets the name of each."""
    shown = []
    for number, case in enumerate(cases):
        said = {field: getattr(case, field) for field in ("name", "paper", "flaw", "proof", "trials")}
        shown.append(said | asdict(case.attack(jax.random.fold_in(key, number), case.trials)))
        if progress is not None:
            progress(case.name)
    return shown
