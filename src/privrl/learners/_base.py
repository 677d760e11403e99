"""What every learner is: declarations, and a function of releases. No noise and no random numbers live here.

An **offline** learner asks a curator questions about a data set at rest. An **online** learner publishes a plan, people
take part under it block by block at public times, and it plans again from what was released. To add an algorithm,
write one file with one class and add one line to the registry in `learners/__init__.py`.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int

from privrl.privacy import AbstractStatistic, Declared, Release


@runtime_checkable
class Ask(Protocol):
    """The curator, as an offline learner sees it."""

    def __call__(self, name: str, statistic: AbstractStatistic | None = None) -> Release:
        """One release of a declared name; pass the statistic where the declaration left it open."""
        ...

    def skip(self, name: str, to: tuple[str, ...]) -> None:
        """Gives up the next release of `name`; its share goes to the coming releases of `to`."""
        ...


class Plan(eqx.Module):
    """What is published to everybody in the coming block: a policy, and a question about how it went."""

    policy: Any
    question: Any = None


class AbstractLearner(eqx.Module):
    """An algorithm without noise.

    `horizon` is the public number of steps. `bounds()` says in words what is enforced on every record.
    """

    horizon: eqx.AbstractVar[int]

    @abc.abstractmethod
    def bounds(self) -> dict[str, Any]:
        """What the statistics enforce, and whether rewards are known or estimated, for the certificate."""


class AbstractOfflineLearner(AbstractLearner):
    """Learns a policy from a data set at rest, in rounds of questions to a curator."""

    @property
    @abc.abstractmethod
    def space(self) -> tuple[int, int]:
        """The public numbers of states and actions."""

    @abc.abstractmethod
    def declare(self) -> tuple[Declared, ...]:
        """Every release that `fit` will ask for."""

    @abc.abstractmethod
    def fit(self, ask: Ask) -> Any:
        """The policy, from releases alone; `ask` raises if more is asked for than was declared."""


class AbstractOnlineLearner(AbstractLearner):
    """Plans, sees a block of people through releases, and plans again."""

    @abc.abstractmethod
    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        """The public ends of the blocks: strictly increasing, the last is `num_users`."""

    @abc.abstractmethod
    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        """Every release of a run of `num_blocks` blocks; streamed ones are made at the end of each block."""

    @abc.abstractmethod
    def init(self) -> Any:
        """The learner's own memory before anything was released: a pytree of public values."""

    @abc.abstractmethod
    def plan(
        self,
        memory: Any,
        released: Mapping[str, Release],
        ask: Callable[[str, int, Any], Release],
        num_seen: Int[Array, ""],
    ) -> tuple[Any, Plan]:
        """The plan for the next block.

        `released` holds the newest release of every streamed name (zeros before the first block). `ask(name, index,
        question)` makes a new release of a name declared with `access="rounds"`; `index` is a Python integer,
        different for each release of one plan. `num_seen` is the public number of people so far.
        """
