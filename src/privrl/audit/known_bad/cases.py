"""Mechanisms that claim more privacy than they give, and attacks that show it: the proof that an audit can fail.

Each case renders a flaw that was printed, or is common in practice, as briefly as it can be, on two neighbouring inputs
that the claim covers, and is caught every time at its own size. None of them is offered as a recipe.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from privrl.audit.known_bad import contributions as _contributions
from privrl.audit.known_bad import floating_point as _floating_point
from privrl.audit.known_bad import functional_attacks as _functional_attacks
from privrl.audit.known_bad import local_messages as _local_messages
from privrl.audit.known_bad import mirrored as _mirrored
from privrl.audit.known_bad import noise_reuse as _noise_reuse
from privrl.audit.known_bad import printed_lq as _printed_lq
from privrl.audit.known_bad import protocols as _protocols
from privrl.audit.known_bad import sensitivity as _sensitivity
from privrl.audit.known_bad import stores as _stores
from privrl.audit.known_bad.case import Case

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
