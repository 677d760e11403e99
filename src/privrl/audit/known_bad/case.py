"""What a known-bad case is: a mechanism that claims more privacy than it gives, and the attack that shows it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jaxtyping import PRNGKeyArray


@dataclass(frozen=True)
class Audited:
    """What an attack found, beside what was claimed, both in `unit`.

    For `epsilon` and `rho` the audited number is a lower bound that holds with the case's confidence, and the case is
    caught when it exceeds the claim. For a `success rate` the claim is what blind guessing would reach.
    """

    claimed: float
    audited: float
    unit: Literal["epsilon", "rho", "success rate"]
    caught: bool
    detail: str = ""


@dataclass(frozen=True)
class Case:
    """A flaw that an audit must catch every time: what it is, where it is printed, why it leaks, and the attack.

    `paper` is the tag of the printed line, such as `sahu A1:12`. `attack(key, trials)` runs the flawed mechanism
    `trials` times in each of two neighbouring worlds (or once on that many people, where the detail says so); `trials`
    is the size at which the case is caught every time. `corrected`, where there is one, is the same attack on the
    mechanism put right, which it must not catch: otherwise it would prove nothing about the flaw.
    """

    name: str
    paper: str
    flaw: str
    proof: str
    attack: Callable[[PRNGKeyArray, int], Audited]
    trials: int
    corrected: Callable[[PRNGKeyArray, int], Audited] | None = None
