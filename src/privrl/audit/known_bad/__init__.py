"""Mechanisms that claim more privacy than they give, and attacks that show it: the proof that an audit can fail.

Each case renders a flaw that was printed, or is common in practice, as briefly as it can be, on two neighbouring inputs
that the claim covers, and is caught every time at its own size. None of them is offered as a recipe.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from privrl.audit.known_bad import (
    _contributions,
    _floating_point,
    _functional_attacks,
    _local_messages,
    _mirrored,
    _noise_reuse,
    _printed_lq,
    _protocols,
    _sensitivity,
    _stores,
)
from privrl.audit.known_bad._case import Audited, Case

CASES: tuple[Case, ...] = (
    *_noise_reuse.CASES,
    *_sensitivity.CASES,
    *_printed_lq.CASES,
    *_local_messages.CASES,
    *_contributions.CASES,
    *_functional_attacks.CASES,
    *_floating_point.CASES,
    *_mirrored.CASES,
    *_protocols.CASES,
    *_stores.CASES,
)


def show(
    cases: Sequence[Case], key: PRNGKeyArray, progress: Callable[[str], None] | None = None
) -> list[dict[str, Any]]:
    """Runs the attack of each case at its own size, with a key of its own; `progress` is told the name of each."""
    shown = []
    for number, case in enumerate(cases):
        found = case.attack(jax.random.fold_in(key, number), case.trials)
        shown.append(
            {
                "name": case.name,
                "paper": case.paper,
                "flaw": case.flaw,
                "proof": case.proof,
                "claimed": found.claimed,
                "audited": found.audited,
                "unit": found.unit,
                "caught": found.caught,
                "trials": case.trials,
                "detail": found.detail,
            }
        )
        if progress is not None:
            progress(case.name)
    return shown


__all__ = ["Audited", "CASES", "Case", "show"]
