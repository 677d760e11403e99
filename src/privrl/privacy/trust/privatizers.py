"""Privatizers: who is trusted, and hence where noise is added.

`NonPrivate` and `Central` trust a curator with raw data; `Local` trusts no one. A privatizer calibrates a learner's
declarations into a ledger, and opens one channel for each streamed declaration (see `channels.py`).
"""

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import jax.numpy as jnp

from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractCategorical, AbstractStatistic, Adjacency
from privrl.privacy.accounting.certificate import Notion
from privrl.privacy.accounting.composition import calibrate
from privrl.privacy.accounting.events import Event, Mechanism, Request
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.accounting.privacy_budget import Budget, BudgetError
from privrl.privacy.continual.epochs import Epochs
from privrl.privacy.continual.intervals import best_intervals
from privrl.privacy.continual.mechanisms import AbstractContinual, BinaryTree, Fresh, Honaker
from privrl.privacy.continual.participation import ONCE, Participation
from privrl.privacy.continual.toeplitz import root_for
from privrl.privacy.noise.subset import SubsetSelection, best_size
from privrl.privacy.trust.channels import (
    AbstractChannel,
    BlockChannel,
    NoiseKind,
    RoundsChannel,
    RunningChannel,
    SumNoise,
    sensitivity_of,
)
from privrl.privacy.trust.direction_channels import DirectionChannel, best_report, radius_of
from privrl.privacy.trust.local_channels import AbstractLocalChannel
from privrl.privacy.trust.repeated import distance_of_people, reach
from privrl.privacy.trust.symbol_channels import SymbolChannel
from privrl.privacy.trust.vector_channels import VectorChannel

Continual = Literal["best", "square-root", "honaker", "intervals", "tree", "fresh"]
_FOR: dict[Continual, tuple[NoiseKind, ...]] = {
    "best": ("gaussian", "laplace"),
    "square-root": ("gaussian",),
    "honaker": ("gaussian",),
    "intervals": ("laplace",),
    "tree": ("gaussian", "laplace"),
    "fresh": ("gaussian", "laplace"),
}


class PairingError(ValueError):
    """This learner and this privatizer cannot work together. The message names alternatives."""


class AbstractPrivatizer(abc.ABC):
    """Turns declarations into a ledger, and the ledger into channels from people to the learner."""

    adjacency: Adjacency

    @property
    @abc.abstractmethod
    def notion(self) -> Notion:
        """The notion of privacy: who may see what."""

    @property
    @abc.abstractmethod
    def reported_delta(self) -> float:
        """The delta at which the certificate states epsilon."""

    @property
    @abc.abstractmethod
    def mechanism_of_rounds(self) -> NoiseKind:
        """The kind of noise of a curator's answers to queries."""

    @property
    def claimed(self) -> Mapping[str, float | str | None] | None:
        """The guarantee that a paper claims for the same noise; `None` if there is no paper."""
        return None

    def notes(self, ledger: Ledger) -> tuple[str, ...]:
        """Sentences to add to the certificate of a ledger."""
        del ledger
        return ()

    @abc.abstractmethod
    def check(self, learner: str, declared: Sequence[Declared], participation: Participation = ONCE) -> None:
        """Refuses declarations that this privatizer cannot serve with this participation, before any data is read."""

    @abc.abstractmethod
    def calibrate(self, declared: Sequence[Declared], participation: Participation = ONCE) -> Ledger:
        """Shares the budget among the declarations."""

    @abc.abstractmethod
    def channel(self, declared: Declared, ledger: Ledger) -> AbstractChannel:
        """Opens the channel of one declared statistic. This has no side effects: the noise distribution is written to
        the ledger when noise is drawn."""


@dataclass(frozen=True)
class NonPrivate(AbstractPrivatizer):
    """No noise and no guarantee: the non-private algorithm, with a certificate of infinite epsilon.

    >>> ledger = privrl.NonPrivate().calibrate((privrl.contracts.Declared("visits"),))
    >>> ledger.events()[0].mechanism
    'none'
    """

    adjacency: Adjacency = "replace-one"
    notion: ClassVar[Notion] = "none"

    @property
    def reported_delta(self) -> float:
        return 0.0

    @property
    def mechanism_of_rounds(self) -> NoiseKind:
        return "gaussian"

    def check(self, learner: str, declared: Sequence[Declared], participation: Participation = ONCE) -> None:
        del learner, declared, participation

    def calibrate(self, declared: Sequence[Declared], participation: Participation = ONCE) -> Ledger:
        return Ledger(declared, [event_of(d, "none", math.inf) for d in declared], self.adjacency, participation)

    def channel(self, declared: Declared, ledger: Ledger) -> AbstractChannel:
        return curator_channel(declared, ledger, "gaussian", "fresh")


@dataclass(frozen=True)
class AbstractBudgeted(AbstractPrivatizer):
    """A privatizer with a budget: `epsilon` and `delta`, `epsilon` alone, or `rho`."""

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None

    @property
    def budget(self) -> Budget | None:
        """The budget, after checking it; `None` if epsilon is infinite, so that no noise is added and nothing
        claimed.
        """
        if self.epsilon == math.inf:
            return None
        return Budget.of(epsilon=self.epsilon, delta=self.delta, rho=self.rho)

    @property
    def reported_delta(self) -> float:
        return 0.0 if self.budget is None else self.budget.delta

    def _events(
        self, declared: Sequence[Declared], mechanisms: Sequence[Mechanism], messages: int = 1
    ) -> tuple[Event, ...]:
        """The events of the declarations, each with its mechanism, when they share the budget. All `messages` of one
        person share it too."""
        pairs = list(zip(declared, mechanisms, strict=True))
        if self.budget is None:
            return tuple(
                replace(event_of(d, mechanism, math.inf), times=d.touches * messages) for d, mechanism in pairs
            )
        requests = [
            Request(d.name, mechanism, d.weight, d.touches * messages, d.group, d.sampling) for d, mechanism in pairs
        ]
        return calibrate(requests, self.budget, adjacency=self.adjacency)


@dataclass(frozen=True)
class Central(AbstractBudgeted):
    """A curator holds the raw data and adds noise to the releases.

    >>> ledger = privrl.Central(epsilon=1, delta=1e-6).calibrate((privrl.contracts.Declared("visits"),))
    >>> round(ledger.parameter("visits"), 3)  # mu of the one release, which has the whole budget
    0.237

    Give `epsilon` and `delta`, or `rho`; `epsilon` alone means pure differential privacy with Laplace noise.
    `epsilon=math.inf` adds no noise (for tests of equality), which the certificate states.

    Arguments:
        mechanism: `"gaussian"` or `"laplace"` noise. The default is Laplace noise for a pure budget, else Gaussian.
        continual: how running sums are released. With Gaussian noise: `"square-root"`, `"honaker"`, `"tree"` or
            `"fresh"`. With Laplace noise: `"intervals"`, `"tree"` or `"fresh"`. The default, `"best"`, is the first
            of each list.
        adjacency: `"replace-one"` (the number of people is public) or `"add-remove"`.

    **Formal guarantee.** The joint distribution of all releases under one ledger is (epsilon, delta)-differentially
    private for the stated adjacency and all data, provided each statistic keeps its own guarantee and the noise
    is continuous and fresh. Read through the billboard lemma it is joint differential privacy for people who act on
    what is published.

    Raises:
        ValueError: the budget is malformed, or no mechanism has this name.
    """

    mechanism: NoiseKind | None = None
    continual: Continual = "best"
    adjacency: Adjacency = "replace-one"
    notion: ClassVar[Notion] = "central"

    def __post_init__(self) -> None:
        if self.mechanism is not None:
            one_of("mechanism", self.mechanism, ("gaussian", "laplace"))
        one_of("continual", self.continual, tuple(_FOR))
        one_of("adjacency", self.adjacency, ("replace-one", "add-remove"))
        if self.budget is not None and self.budget.kind == "pure" and self.mechanism == "gaussian":
            raise BudgetError(
                f"`epsilon`={self.epsilon} alone means pure privacy, which Gaussian noise cannot provide. Give a "
                "`delta` (below one over the number of people), or leave out `mechanism`."
            )
        check_continual(self.continual, self.mechanism_of_rounds)

    @property
    def mechanism_of_rounds(self) -> NoiseKind:
        pure = self.budget is not None and self.budget.kind == "pure"
        return self.mechanism or ("laplace" if pure else "gaussian")

    def check(self, learner: str, declared: Sequence[Declared], participation: Participation = ONCE) -> None:
        del participation
        for d in declared:
            if d.gaussian and self.mechanism_of_rounds == "laplace":
                raise PairingError(
                    f"`{d.name}` of `{learner}` is released with Gaussian noise, and this budget is for Laplace noise. "
                    "Nothing was released. Use `Central(..., mechanism='gaussian')` with a delta."
                )

    def calibrate(self, declared: Sequence[Declared], participation: Participation = ONCE) -> Ledger:
        events = self._events(declared, [self._of(d) for d in declared])
        return Ledger(declared, events, self.adjacency, participation)

    def _of(self, declared: Declared) -> SumNoise:
        """The mechanism of a release: a choice has its own, independent of that of sums."""
        return "exponential" if declared.access == "choice" else self.mechanism_of_rounds

    def channel(self, declared: Declared, ledger: Ledger) -> AbstractChannel:
        return curator_channel(declared, ledger, self.mechanism_of_rounds, self.continual)


@dataclass(frozen=True)
class Local(AbstractBudgeted):
    """No one is trusted: each person randomises their one message before it leaves their device.

    >>> privrl.Local(epsilon=1).notion
    'local'

    If people take part m times, their m messages share the budget: epsilon/m each by symbols, mu/sqrt m each with
    Gaussian noise (basic composition, and that of Gaussian differential privacy; both are exact). The certificate is
    about the person, not about one message.

    With `epsilon` alone (pure differential privacy), each declared statistic is sent as one symbol by subset selection,
    whose simplest case is randomised response. With `delta` too, or with `rho`, the whole term is sent with Gaussian
    noise.

    Arguments:
        reports: `"symbols"`, or `"vectors"` if a report with `epsilon` alone is the whole term, with Laplace noise or
            as a random direction, whichever has the smaller variance (`direction_channels.py`). Statistics that
            cannot be queried one symbol at a time are always sent as vectors.

    Raises:
        ValueError: the budget is malformed, or `reports` has another value.
    """

    reports: Literal["symbols", "vectors"] = "symbols"
    adjacency: Adjacency = field(default="replace-one", init=False)
    notion: ClassVar[Notion] = "local"

    def __post_init__(self) -> None:
        _ = self.budget  # raises if it is malformed
        one_of("reports", self.reports, ("symbols", "vectors"))

    def _kind(self, declared: Declared) -> Literal["symbols", "pure vectors", "gaussian"]:
        """The form of the reports of one statistic."""
        if self.delta is not None or self.rho is not None:
            return "gaussian"
        by_symbol = self.reports == "symbols" and isinstance(declared.statistic, AbstractCategorical)
        return "symbols" if by_symbol else "pure vectors"

    @property
    def mechanism_of_rounds(self) -> NoiseKind:
        raise PairingError("`Local` has no curator to answer queries. Use `Central(...)`.")

    def check(self, learner: str, declared: Sequence[Declared], participation: Participation = ONCE) -> None:
        del participation  # all messages of one person share the budget
        asked = [d.name for d in declared if d.access in ("rounds", "choice")]
        if asked:
            raise PairingError(
                f"`{learner}` makes new queries about people who have already left (releases "
                f"{', '.join(f'`{name}`' for name in asked)}), and `Local` keeps no raw data to answer them. Use "
                "`Central(...)`, or a learner that sends one message per person, such as `UCBVI`."
            )

    def calibrate(self, declared: Sequence[Declared], participation: Participation = ONCE) -> Ledger:
        kinds = [self._kind(d) for d in declared]
        mechanisms: list[Mechanism] = ["gaussian" if kind == "gaussian" else "pure" for kind in kinds]
        events = self._events(declared, mechanisms, participation.times)
        exact = {"symbols": _answer_event, "pure vectors": _vector_event, "gaussian": lambda declared, event: event}
        events = tuple(exact[kind](d, event) for kind, d, event in zip(kinds, declared, events, strict=True))
        return Ledger(declared, events, self.adjacency, participation)

    def channel(self, declared: Declared, ledger: Ledger) -> AbstractLocalChannel:
        kind = self._kind(declared)
        if kind == "symbols":
            return symbol_channel(declared, ledger)
        parameter = ledger.parameter(declared.name)
        statistic = _reported_statistic(declared)
        if kind == "pure vectors" and best_report(statistic, parameter) == "directions":
            radius = jnp.asarray(radius_of(statistic, parameter))
            return DirectionChannel(statistic, jnp.asarray(parameter), radius, declared.access == "running")
        return vector_channel(declared, ledger, "laplace" if kind == "pure vectors" else "gaussian")


def _answer_event(declared: Declared, event: Event) -> Event:
    """The event of an answer by subset selection.

    One symbol is randomised response, whose losses are known exactly. A set of several is accounted as any
    epsilon-private answer, that is as randomised response over two symbols, which dominates all of them.
    """
    symbols = _symbols(declared)
    if best_size(symbols, event.parameter) > 1:
        return event
    return replace(event, mechanism="randomised-response", symbols=symbols)


def _vector_event(declared: Declared, event: Event) -> Event:
    """The event of a vector: Laplace noise, or a random direction, which is a randomised response of two symbols."""
    if best_report(_reported_statistic(declared), event.parameter) == "laplace":
        return replace(event, mechanism="laplace")
    return replace(event, mechanism="randomised-response", symbols=2)


def streamed_statistic(declared: Declared) -> AbstractStatistic:
    """The statistic of a channel. All people take part in a channel, so a declaration for some of them is refused."""
    if declared.statistic is None:
        raise PairingError(
            f"Release `{declared.name}` has no statistic of its own, so it can only be queried on a data set at rest. "
            "Declare its `statistic`."
        )
    if declared.group is not None or declared.sampling < 1.0 or declared.access == "choice":
        raise PairingError(
            f"Release `{declared.name}` is declared for some of the people (`group`, `sampling`), or as a choice, "
            "which only a curator of a data set at rest can serve. Remove that."
        )
    return declared.statistic


def curator_channel(declared: Declared, ledger: Ledger, mechanism: NoiseKind, continual: Continual) -> AbstractChannel:
    """The channel of a trusted curator. The noise scale of a streamed statistic is fixed here, once.

    If people return after a known distance, `"square-root"` is truncated if that makes less noise. `"intervals"` takes
    the cover that makes the least.
    """
    statistic, parameter, often = streamed_statistic(declared), ledger.parameter(declared.name), ledger.participation
    if declared.access == "running":
        scheme = _scheme(continual, mechanism, declared, often)
        sensitivity = distance_of_people(statistic, mechanism, ledger.adjacency, often)
        sensitivity *= scheme.factor if often.times == 1 else scheme.sensitivity(often)
        return RunningChannel(statistic, scheme, jnp.asarray(sensitivity), jnp.asarray(sensitivity / parameter))
    sensitivity = distance_of_people(statistic, mechanism, ledger.adjacency, often)
    sensitivity *= reach(mechanism, declared.access, declared.times, often)
    kind = BlockChannel if declared.access == "blocks" else RoundsChannel
    return kind(statistic, jnp.asarray(sensitivity), jnp.asarray(sensitivity / parameter), mechanism)


def check_continual(continual: Continual, mechanism: NoiseKind) -> None:
    """Refuses a continual mechanism that is not private with this kind of noise."""
    if mechanism not in _FOR[continual]:
        allowed = ", ".join(repr(name) for name, kinds in _FOR.items() if mechanism in kinds)
        raise ValueError(f"`continual` is {continual!r}; with {mechanism} noise it must be one of {allowed}.")


def _scheme(continual: Continual, mechanism: NoiseKind, declared: Declared, often: Participation) -> AbstractContinual:
    """The mechanism of running sums; if they have no known end, one in every epoch."""
    check_continual(continual, mechanism)

    def create(steps: int) -> AbstractContinual:
        if continual == "tree":
            return BinaryTree(steps, mechanism)
        if continual == "fresh":
            return Fresh(steps, mechanism)
        if mechanism == "laplace":
            return best_intervals(steps, often)
        return Honaker(steps) if continual == "honaker" else root_for(steps, often)

    if len(declared.epochs) > 1:
        return Epochs.from_lengths(create, declared.epochs, declared.forget)
    return create(declared.times)


def _reported_statistic(declared: Declared) -> AbstractStatistic:
    """The statistic of messages that are noisy when they leave people. The server sums them and cannot forget."""
    if declared.forget < 1.0:
        raise PairingError(
            f"`forget` is {declared.forget:g}, and only a curator's sums can forget. Use `Central(...)`, or remove it."
        )
    return streamed_statistic(declared)


def vector_channel(declared: Declared, ledger: Ledger, mechanism: NoiseKind = "gaussian") -> VectorChannel:
    """The channel of people who each add noise to their own message."""
    statistic = _reported_statistic(declared)
    sensitivity = sensitivity_of(statistic, mechanism, ledger.adjacency)
    scale = sensitivity / ledger.parameter(declared.name)
    running = declared.access == "running"
    return VectorChannel(statistic, jnp.asarray(sensitivity), jnp.asarray(scale), running, mechanism)


def symbol_channel(declared: Declared, ledger: Ledger) -> SymbolChannel:
    """The channel of people who each answer with a random set of symbols."""
    statistic, parameter = _reported_statistic(declared), ledger.parameter(declared.name)
    assert isinstance(statistic, AbstractCategorical)
    return SymbolChannel(statistic, SubsetSelection(statistic.num_symbols, parameter), declared.access == "running")


def event_of(declared: Declared, mechanism: Mechanism, parameter: float) -> Event:
    """The event of a declaration, for a parameter of its mechanism."""
    sampling = declared.sampling if mechanism == "gaussian" else 1.0
    return Event(declared.name, mechanism, parameter, declared.touches, declared.group, sampling)


def _symbols(declared: Declared) -> int:
    assert isinstance(declared.statistic, AbstractCategorical)
    return declared.statistic.num_symbols


def refuse_returns(participation: Participation, why: str) -> None:
    """Refuses participation more than once."""
    if participation.times > 1:
        raise PairingError(
            f"One person may take part {participation.times} times, and {why}. Use `Central(...)`, or let each person "
            "take part once."
        )


def one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """Refuses a setting that is not one of the allowed words."""
    if value not in allowed:
        raise ValueError(f"`{name}` is {value!r}; it must be one of {', '.join(map(repr, allowed))}.")
