"""Mechanisms that claim more privacy than they give, and attacks that show it: the proof that an audit can fail.

Each case renders a flaw that was printed, or is common in practice, as briefly as it can be, on two neighbouring inputs
that the claim covers, and is caught every time at its own size. None of them is offered as a recipe.
"""

from privrl.audit.known_bad.cases import CASES, show

__all__ = ["CASES", "show"]
