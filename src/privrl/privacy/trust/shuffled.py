"""`Shuffled`: only a shuffler is trusted, which passes answers on without revealing who gave them.

Each person randomises their one answer with a local epsilon that is larger than that of the guarantee. The other
people of their batch hide it (`shuffling.py` has the theorem and its proof).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractCategorical, Adjacency
from privrl.privacy.accounting.certificate import Notion
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.accounting.privacy_budget import BudgetError
from privrl.privacy.accounting.shuffling import local_epsilon_for
from privrl.privacy.continual.participation import ONCE, Participation
from privrl.privacy.trust.channels import NoiseKind
from privrl.privacy.trust.local_channels import AbstractLocalChannel
from privrl.privacy.trust.privatizers import AbstractBudgeted, PairingError, refuse_returns, symbol_channel


@dataclass(frozen=True)
class Batched(Declared):
    """A declaration whose blocks of people have at least the public size `smallest`."""

    smallest: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smallest < 1:
            raise ValueError(f"`smallest` of release `{self.name}` is {self.smallest}; it must be at least 1.")


@dataclass(frozen=True)
class Shuffled(AbstractBudgeted):
    """Each person sends one randomised answer through a shuffler, whose output is (epsilon, delta)-private.

    >>> privrl.Shuffled(epsilon=1, delta=1e-6).notion
    'shuffle'

    Give `epsilon` and `delta`. The local epsilon is the largest that the smallest batch can hide, so learners must
    declare the smallest size of their blocks (`Batched`). A larger first block gives more accurate answers.

    **Formal guarantee.** All that leaves the shuffler, and everything made from it, is (epsilon, delta)-differentially
    private for one person replaced by another, if within each batch the shuffler assigns the queries by a uniformly
    random permutation that it keeps secret, and waits for the whole batch. Each person is in one batch, and later
    batches depend on theirs only through what left the shuffler (parallel composition). Without an honest shuffler,
    people are still protected by the local epsilon, which is recorded in the event.

    Raises:
        ValueError: `epsilon` or `delta` is missing or out of its range.
    """

    adjacency: Adjacency = field(default="replace-one", init=False)
    notion: ClassVar[Notion] = "shuffle"

    def __post_init__(self) -> None:
        budget = self.budget  # raises if it is malformed
        if budget is not None and (budget.kind == "pure" or budget.epsilon is None):
            raise BudgetError("`Shuffled` requires `epsilon` and a `delta` in (0, 1).")

    @property
    def mechanism_of_rounds(self) -> NoiseKind:
        raise PairingError("`Shuffled` has no curator to answer queries. Use `Central(...)`.")

    def check(self, learner: str, declared: Sequence[Declared], participation: Participation = ONCE) -> None:
        refuse_returns(participation, "a shuffler hides only people who answer once")
        if len(declared) != 1 or declared[0].access in ("rounds", "choice"):
            raise PairingError(
                f"`Shuffled` requires one query to each person, and `{learner}` declares "
                f"{', '.join(f'`{d.name}` ({d.access})' for d in declared)}. Use `Central(...)`, or `UCBVI`."
            )
        if not isinstance(declared[0].statistic, AbstractCategorical):
            raise PairingError(
                f"`{learner}` cannot query `{declared[0].name}` one symbol at a time, so `Shuffled` cannot serve it. "
                "Use `Central(...)`, or `Local(...)` with a `delta`."
            )
        local = self.local_epsilon(declared[0])
        if self.epsilon is not None and local < 1.01 * self.epsilon < math.inf:
            raise PairingError(
                f"The smallest block of `{learner}` has {_smallest(declared[0])} people, who do not hide each other at "
                f"epsilon = {self.epsilon} and delta = {self.delta}. Use larger blocks (`first_block`, and at least "
                "twice as many users), or `Local(...)`."
            )

    def notes(self, ledger: Ledger) -> tuple[str, ...]:
        (event,) = ledger.events()
        return (f"without the shuffler: epsilon = {event.parameter:.4g}; batches have at least {event.batch} people",)

    def local_epsilon(self, declared: Declared) -> float:
        """The local epsilon with which each person answers."""
        budget = self.budget
        if budget is None:
            return math.inf
        assert budget.epsilon is not None
        return local_epsilon_for(budget.epsilon, budget.delta, _smallest(declared))

    def calibrate(self, declared: Sequence[Declared], participation: Participation = ONCE) -> Ledger:
        (only,) = declared
        event = Event(only.name, "shuffled", self.local_epsilon(only), batch=_smallest(only))
        return Ledger(declared, [event], self.adjacency, participation)

    def channel(self, declared: Declared, ledger: Ledger) -> AbstractLocalChannel:
        return symbol_channel(declared, ledger)


def _smallest(declared: Declared) -> int:
    return declared.smallest if isinstance(declared, Batched) else 1
