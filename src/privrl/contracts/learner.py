"""The interface of learners: a learner declares releases and computes a policy from them.

Learners draw no noise and no random numbers. Evaluators and choosers (`privrl.evaluation`) declare and read releases in
the same way, but they learn no policy.

An **offline** learner queries a curator about a data set at rest. An **online** learner publishes a plan, people take
part under it block by block at public times, and it plans again from the releases. To add an algorithm, write one file
with one class, and add one entry to the recipes.
"""

import abc
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from privrl.contracts.policy import AbstractPolicy
from privrl.contracts.release import Declared, Release
from privrl.contracts.statistic import AbstractStatistic


@runtime_checkable
class Ask(Protocol):
    """The curator, as an offline learner sees it."""

    def __call__(self, name: str, statistic: AbstractStatistic | None = None) -> Release:
        """Makes one release of a declared name. Pass the statistic if the declaration left it open."""
        ...

    def secret(self, name: str, *, distance: float, beta: float) -> PyTree:
        """Makes the one release of a secret function, noisy enough for neighbours at `distance` in the space of the
        kernel exp(-beta|x-y|)."""
        ...

    def people(self, group: str | None = None) -> int:
        """The number of people, or of those in a group. It is public if neighbours replace one person."""
        ...

    def skip(self, name: str, to: tuple[str, ...]) -> None:
        """Gives up the next release of `name` and adds its share of the budget to the coming releases of `to`."""
        ...


Releases = Mapping[str, Release]
"""The newest release of every streamed name."""


@runtime_checkable
class OnlineAsk(Protocol):
    """The curator, as an online learner sees it: it answers queries about all people so far."""

    def __call__(self, name: str, index: int | Int[Array, ""], query: PyTree) -> Release:
        """Makes one release of a name declared with `access="rounds"`. Each query of one plan has its own `index`."""
        ...

    def scan(self, body: Callable[[PyTree, int | Int[Array, ""]], PyTree], init: PyTree, length: int) -> PyTree:
        """Computes `init = body(init, i)` for i = length-1, ..., 0, compiled once; a query in `body` has index i."""
        ...


class Plan(eqx.Module):
    """What is published to all people of the coming block: a policy, and a query that their records will answer."""

    policy: PyTree
    query: PyTree = None


class AbstractAnalysis(eqx.Module):
    """Declares releases and computes something from them. It draws no noise.

    `horizon` is the public number of steps. `bounds()` describes what is enforced on every record.
    """

    horizon: eqx.AbstractVar[int]

    @property
    def neighbours(self) -> str:
        """A description of what two neighbouring secrets differ by; empty if they differ by one person."""
        return ""

    @property
    def largest_array(self) -> int:
        """The public number of entries of the largest array that is certainly made, besides the declared sums."""
        return 0

    @property
    def return_range(self) -> tuple[float, float] | None:
        """The smallest and the largest return of an episode, if the analysis enforces them."""
        return None

    @abc.abstractmethod
    def bounds(self) -> dict[str, object]:
        """What the statistics enforce, and whether rewards are known or estimated, for the certificate."""


class AbstractOfflineAnalysis(AbstractAnalysis):
    """Queries a curator about a data set at rest.

    `learns_from` is the kind of the secret: episodes of people, or one reward function.
    """

    learns_from: ClassVar[Literal["episodes", "reward function"]] = "episodes"

    @property
    @abc.abstractmethod
    def space(self) -> tuple[int, int]:
        """The public numbers of states (entries of a state, if it is a vector) and of actions."""

    @property
    def measurements(self) -> tuple[object, ...]:
        """The declared columns of a state if states are vectors of measurements; empty if states are numbers."""
        return ()

    @abc.abstractmethod
    def declare(self) -> tuple[Declared, ...]:
        """Declares every release that the analysis will ask for."""


class AbstractLearner(AbstractAnalysis):
    """Learns a policy."""


@dataclass(frozen=True)
class Solution:
    """What an offline learner computes from its releases.

    Attributes:
        policy: the policy.
        values: the value of each state for people, on any scale; if states are measurements, the weights of that value
            on the features of the policy. `None` unless the learner `gives_values`.
        strength: how strongly the advice of each state is given by an assisted policy, in [0, 1]: in proportion to its
            estimated advantage over practice; `None` if that was not estimated. If the policy depends on the step, the
            advantage is that of its own action at each step, and the advice is its most probable action over the first.
        choice: a sentence on how the policy was chosen among candidates; empty if there was nothing to choose.
    """

    policy: AbstractPolicy
    values: Float[Array, " S"] | None = None
    strength: Float[Array, " S"] | None = None
    choice: str = ""


class AbstractOfflineLearner(AbstractLearner, AbstractOfflineAnalysis):
    """Learns a policy from a data set at rest, in rounds of queries to a curator.

    `gives_values` tells whether the solution has values. It is public before anything is released.
    """

    gives_values: ClassVar[bool] = False

    @abc.abstractmethod
    def fit(self, ask: Ask) -> Solution:
        """Computes the policy from releases alone. `ask` raises if the learner asks for more than it declared."""


class AbstractOnlineLearner(AbstractLearner):
    """Plans, sees a block of people through releases, and plans again.

    Attributes:
        one_plan_per_block: whether `plan` needs to know the plan that the people of a block acted on (their policy, or
            their query) to read the sums of the block. If people overlap, some people of a block act on an older plan
            than others. Then only the people of one plan are in the sums, and `acted_on` receives that plan. If false,
            all people of the block are in the sums.
        reads_newest_sums: whether `plan` reads only the newest releases, not what changed since earlier ones. Then it
            can also read sums in which earlier people weigh less.
    """

    one_plan_per_block: ClassVar[bool] = False
    reads_newest_sums: ClassVar[bool] = False

    @abc.abstractmethod
    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        """The public ends of the blocks: strictly increasing, the last is `num_users`."""

    @abc.abstractmethod
    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        """Every release of a run of `num_blocks` blocks; streamed ones are made at the end of each block."""

    def init(self) -> PyTree:
        """The learner's memory before the first release: a pytree of public values, or `None`."""
        return None

    @abc.abstractmethod
    def plan(
        self,
        memory: PyTree,
        released: Releases,
        ask: OnlineAsk,
        num_seen: Int[Array, ""],
    ) -> tuple[PyTree, Plan]:
        """Computes the memory and the plan for the next block.

        A learner that plans at random, such as posterior sampling, adds `*, key: PRNGKeyArray | None = None`. It then
        receives public randomness: a new key for every plan, which the operator of the study draws independently of
        people and noise. Assume that everyone knows it. The plan is then a function of releases and of a public key,
        so it costs nothing.

        Arguments:
            memory: the memory that came with the last plan.
            released: the newest release of every streamed name (zeros before the first block).
            ask: `ask(name, index, query)` makes a new release of a name declared with `access="rounds"`; `index` is a
                Python integer, different for each release of one plan. `ask.scan` runs a step of planning backwards,
                compiled once.
            num_seen: the public number of people so far. If people return, there may be more records
                (`with_returns`).
        """

    def acted_on(self, memory: PyTree, published: PyTree, others: Int[Array, ""]) -> PyTree:
        """Returns the memory to plan from, after a block whose people acted on an earlier plan.

        Arguments:
            memory: the memory that came with the newest plan. What was learnt since the earlier plan stays in it.
            published: the memory that came with the plan that the block acted on. It equals `memory` unless plans lag
                behind.
            others: the (public) number of people in the block who acted on a different plan. Their records are
                excluded from the sums.
        """
        del published, others
        return memory

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of the arms to which a trial randomises people; empty if all people act on the plan."""
        return ()

    def enrol(self, memory: PyTree, assigned: PyTree, begun: Int[Array, ""]) -> PyTree:
        """Returns the memory of a trial to plan from, after a block has closed and before `plan` reads its releases.

        Arguments:
            memory: the memory that came with the newest plan.
            assigned: the (public) number of people of the block who were assigned to each arm and count, as the
                trial's own `count_people` makes it.
            begun: the number of the plan under which the first person of the block arrived.
        """
        del assigned, begun
        return memory

    def with_returns(self, returns: int) -> "AbstractOnlineLearner":
        """Returns this learner for studies in which up to `returns` further records of each person are in the sums.

        The number of records is then not public. A learner that needs it must estimate it from releases; other
        learners are returned unchanged.
        """
        del returns
        return self

    def blocks(self, num_users: int) -> Int[np.ndarray, " B"]:
        """The schedule, after checking it."""
        ends = np.asarray(self.schedule(num_users))
        if len(ends) == 0 or (np.diff(ends, prepend=0) < 1).any() or ends[-1] != num_users:
            raise ValueError(
                f"`{type(self).__name__}.schedule({num_users})` must be positive, strictly increasing and end at "
                f"{num_users}; it begins {ends[:5].tolist()} and ends {ends[-1:].tolist()}."
            )
        return ends

    @property
    def plans_at_random(self) -> bool:
        """Whether `plan` takes a `key`."""
        return "key" in inspect.signature(type(self).plan).parameters
