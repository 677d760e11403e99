"""Mechanisms that claim more privacy than they give, and attacks that prove it: evidence that an audit can fail.

Each case implements a flaw that was printed, or is common in practice, as briefly as possible, on two neighbouring
inputs that the claim covers. The attack catches it every time at its own size. None of them is offered as a recipe.
"""

from privrl.audit.known_bad.cases import CASES, run_cases

__all__ = ["CASES", "run_cases"]
