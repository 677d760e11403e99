"""What every learner is: declarations, and a function of releases. Learners draw no noise and no random numbers.

Evaluators and choosers (`privrl.evaluation`) are such analyses of releases too, but they learn no policy.

An **offline** learner asks a curator questions about a data set at rest. An **online** learner publishes a plan, people
take part under it block by block at public times, and it plans again from what was released. To add an algorithm,
write one file with one class, and one entry among the recipes.
"""

import abc
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.contracts.policy import AbstractPolicy
from privrl.contracts.release import Declared, Release
from privrl.contracts.statistic import AbstractStatistic


@runtime_checkable
class Ask(Protocol):
    """The curator, as an offline learner sees it."""

    def __call__(self, name: str, statistic: AbstractStatistic | None = None) -> Release:
        """One release of a declared name; pass the statistic where the declaration left it open."""
        ...

    def secret(self, name: str, *, distance: float, beta: float) -> Any:
        """Where the secret is a function: its one release, noisy enough for neighbours at `distance` in the space of
        the kernel exp(-beta|x-y|)."""
        ...

    def people(self, group: str | None = None) -> int:
        """How many people there are, or how many of a group: public where neighbours replace one person."""
        ...

    def skip(self, name: str, to: tuple[str, ...]) -> None:
        """Gives up the next release of `name`; its share goes to the coming releases of `to`."""
        ...


Releases = Mapping[str, Release]
"""The newest release of every streamed name."""


@runtime_checkable
class Query(Protocol):
    """Whoever answers an online learner's queries about everybody so far."""

    def __call__(self, name: str, index: int | Int[Array, ""], question: Any) -> Release:
        """One release of a name that was declared with `access="rounds"`; `index` is new for each in one plan."""
        ...

    def scan(self, body: Callable[[Any, Any], Any], init: Any, length: int) -> Any:
        """`init = body(init, i)` for i = length-1, ..., 0, compiled once; a query in `body` has the index i."""
        ...


class Plan(eqx.Module):
    """What is published to everybody in the coming block: a policy, and a question about how it went."""

    policy: Any
    question: Any = None


class AbstractAnalysis(eqx.Module):
    """Declares releases and computes something from them. It draws no noise.

    `horizon` is the public number of steps. `bounds()` says in words what is enforced on every record.
    """

    horizon: eqx.AbstractVar[int]

    @property
    def neighbours(self) -> str:
        """What two neighbouring secrets differ by, in words, where that is not a whole person."""
        return ""

    @property
    def largest_array(self) -> int:
        """The public number of entries of the largest array that is surely made, besides the sums that are declared."""
        return 0

    @abc.abstractmethod
    def bounds(self) -> dict[str, Any]:
        """What the statistics enforce, and whether rewards are known or estimated, for the certificate."""


class AbstractOfflineAnalysis(AbstractAnalysis):
    """Queries a curator about a data set at rest.

    `learns_from` is the kind of the secret: episodes of people, or one reward function.
    """

    learns_from: ClassVar[Literal["episodes", "reward function"]] = "episodes"

    @property
    @abc.abstractmethod
    def space(self) -> tuple[int, int]:
        """The public numbers of states (entries of a state, where it is a vector) and actions."""

    @property
    def measurements(self) -> tuple[Any, ...]:
        """The declared columns of a state, where states are vectors of measurements; none where they are numbers."""
        return ()

    @abc.abstractmethod
    def declare(self) -> tuple[Declared, ...]:
        """Every release that the analysis asks for."""


class AbstractLearner(AbstractAnalysis):
    """Learns a policy."""


@dataclass(frozen=True)
class Solution:
    """What an offline learner makes of its releases.

    Attributes:
        policy: the policy.
        values: how well people fare from each state, in any units; if states are measurements, the weights of such a
            value on the features of the policy. `None` unless the learner `gives_values`.
        choice: a sentence on how the policy was chosen among candidates; empty if there was nothing to choose.
    """

    policy: AbstractPolicy
    values: Float[Array, " S"] | None = None
    choice: str = ""


class AbstractOfflineLearner(AbstractLearner, AbstractOfflineAnalysis):
    """Learns a policy from a data set at rest, in rounds of queries to a curator.

    `gives_values` says whether the solution has values. It is public before anything is released.
    """

    gives_values: ClassVar[bool] = False

    @abc.abstractmethod
    def fit(self, ask: Ask) -> Solution:
        """The policy, from releases alone; `ask` raises if more is asked for than was declared."""


class AbstractOnlineLearner(AbstractLearner):
    """Plans, sees a block of people through releases, and plans again.

    `one_plan_per_block` says whether `plan` reads the sums of a block in the light of the plan that its people acted
    on (their policy, or their question). Where people overlap, some of a block act on an older plan than others: then
    only those of one plan are in the sums, and `acted_on` says which. Otherwise everybody is.

    `reads_newest_sums` says whether `plan` reads the newest releases alone, whatever they were before: then sums in
    which older people weigh less are read as well as any.
    """

    one_plan_per_block: ClassVar[bool] = False
    reads_newest_sums: ClassVar[bool] = False

    @abc.abstractmethod
    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        """The public ends of the blocks: strictly increasing, the last is `num_users`."""

    @abc.abstractmethod
    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        """Every release of a run of `num_blocks` blocks; streamed ones are made at the end of each block."""

    def init(self) -> Any:
        """The learner's own memory before anything was released: a pytree of public values, or nothing."""
        return None

    @abc.abstractmethod
    def plan(
        self,
        memory: Any,
        released: Releases,
        ask: Query,
        num_seen: Int[Array, ""],
    ) -> tuple[Any, Plan]:
        """The plan for the next block.

        `released` holds the newest release of every streamed name (zeros before the first block). `ask(name, index,
        question)` makes a new release of a name declared with `access="rounds"`; `index` is a Python integer,
        different for each release of one plan. `ask.scan` runs a step of planning backwards, compiled once. `num_seen`
        is the public number of people so far; where they come back, there may be more records (`with_returns`).

        A learner that plans at random, such as posterior sampling, adds `*, key: PRNGKeyArray | None = None` and is
        given public randomness: a new key for every plan, drawn by whoever runs the study, independently of people and
        noise. Assume that everybody knows it. The plan is then a function of releases and of a public key, so it costs
        nothing.
        """

    def acted_on(self, memory: Any, published: Any, others: Int[Array, ""]) -> Any:
        """The memory to plan from after a block that acted on the plan which was made together with `published`.

        `memory` came with the newest plan, and is `published` itself unless plans lag behind. `others`, a public
        number, people of the block acted on other plans and are not in its sums. Everything else of `memory` stays:
        what was learnt since is not forgotten.
        """
        del published, others
        return memory

    def with_returns(self, returns: int) -> "AbstractOnlineLearner":
        """This learner where up to `returns` further records of each person may be in the sums while nobody may know
        how many are: one that reads how many records there are reads it off releases then. Others stay as they are.
        """
        del returns
        return self

    def blocks(self, num_users: int) -> Int[np.ndarray, " B"]:
        """The schedule, checked."""
        ends = np.asarray(self.schedule(num_users))
        if len(ends) == 0 or (np.diff(ends, prepend=0) < 1).any() or ends[-1] != num_users:
            raise ValueError(
                f"`{type(self).__name__}.schedule({num_users})` must be positive and strictly increasing and end at "
                f"{num_users}; it begins {ends[:5].tolist()} and ends {ends[-1:].tolist()}."
            )
        return ends

    @property
    def plans_at_random(self) -> bool:
        """Whether `plan` takes a `key`."""
        return "key" in inspect.signature(type(self).plan).parameters
