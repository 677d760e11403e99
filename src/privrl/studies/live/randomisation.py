"""The arms of a trial: the system's randomness draws one for each person, once, when they arrive.

The drawn arm is kept with the person's place before the ticket is issued, so a repeated request, a restart and
another machine return the same arm. A person who returns keeps it.

**Formal guarantee.** An arm is a function of new random numbers and of the public shares of the person's block, and
of nothing that was recorded. The shares of a block are those of the plan under which its first person arrived, so
they are constant within a block. Numbers of people by arm are therefore public.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from privrl.studies.simulation.simulated_loop import SimulationKeys

PRACTICE = 0  # the arm in which clinicians decide
_ARM = 1  # the purpose of the draw, under a person's key


@runtime_checkable
class TrialPlan(Protocol):
    """What a plan of a trial says about arms; a function of releases."""

    def shares_of(self, block: int) -> Float[np.ndarray, " arms"]:
        """The share of each arm in a block whose first person arrives under this plan. They add up to 1."""

    def is_open(self, arm: int) -> bool:
        """Whether people are still randomised to this arm and counted."""

    @property
    def served(self) -> int | None:
        """The arm that every new person gets because the trial has ended; `None` until then."""


@dataclass(frozen=True)
class Assigned:
    """The arm of one person.

    Attributes:
        arm: what the person gets.
        counts: whether their record is in the sums, and they are in the number assigned to the arm.
    """

    arm: int
    counts: bool

    def to_json(self) -> dict[str, object]:
        """What is kept with the person's place."""
        return {"arm": self.arm} if self.counts else {"arm": self.arm, "counts": False}


class Randomisation:
    """Draws the arms of people.

    Arguments:
        plan_of: the plan of a trial with this number; -1 is the newest that this process knows.
        key: for tests and simulations, where arms are those of a seed. Leave it out with real people.
    """

    def __init__(self, plan_of: Callable[[int], TrialPlan], key: PRNGKeyArray | None = None) -> None:
        self._plan_of, self._key = plan_of, key

    @property
    def has_ended(self) -> bool:
        """Whether the trial has ended under the newest plan. Blocks that are open then never close."""
        return self._plan_of(-1).served is not None

    def draw(self, number: int, block: int | None, plan: int, begun: int) -> Assigned:
        """Draws the arm of a new person.

        Arguments:
            number: the number of people who arrived before.
            block: the block of this number; `None` if all places of the trial are taken.
            plan: the number of the plan that is in force.
            begun: the number of the plan that was in force when the first person of the block arrived.
        """
        current = self._plan_of(plan)
        if current.served is not None:
            return Assigned(current.served, counts=False)
        if block is None:  # the last look is still to come
            return Assigned(PRACTICE, counts=False)
        arm = choose_arm(self._plan_of(begun).shares_of(block), self._coin(number, block))
        return Assigned(arm, counts=True) if current.is_open(arm) else Assigned(PRACTICE, counts=False)

    def _coin(self, number: int, block: int) -> float:
        if self._key is None:
            return secrets.randbits(53) * 2.0**-53
        person = SimulationKeys.of(self._key).person(block, number)
        return float(jax.random.uniform(jax.random.fold_in(person, _ARM)))


def choose_arm(shares: Float[np.ndarray, " arms"], coin: float) -> int:
    """The arm at a place in [0, 1) of the shares, laid end to end. An arm without a share is never chosen."""
    ends = np.cumsum(shares)
    return int(np.searchsorted(ends, min(coin, 1.0) * ends[-1], side="right").clip(0, np.flatnonzero(shares)[-1]))
