"""Entries of a ledger: a calibrated release (`Event`), and a request for one (`Request`)."""

import math
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from privrl.contracts.release import MAX_RELEASES
from privrl.privacy.accounting.gdp import check

Mechanism = Literal["gaussian", "laplace", "randomised-response", "shuffled", "exponential", "pure", "none"]


@dataclass(frozen=True)
class Event:
    """One release (or `times` equal ones) as the accountant sees it.

    Arguments:
        name: the name of the release in the ledger.
        mechanism: the noise distribution. `"exponential"` is a noisy maximum (`noise/maximum.py`), `"pure"` any release
            known only to be epsilon-differentially private, and `"none"` one without noise.
        parameter: L2 sensitivity over standard deviation (mu) for `"gaussian"`; epsilon for the others (for
            `"laplace"`: L1 sensitivity over scale, for `"exponential"`: spread over scale); infinite for `"none"`.
        times: how often it touches one person.
        group: events of different groups touch disjoint people; `None` touches all people.
        sampling: each release sees each person with this probability, independently; Gaussian only.
        symbols: the number of possible answers of randomised response.
        batch: for `"shuffled"` answers, whose `parameter` is the local epsilon: the least number of people whose
            answers are shuffled together.

    **Formal guarantee.** The sensitivity inside `parameter` is that of the neighbouring relation the events are
    accounted under, for every mechanism. With `sampling` < 1 a person who is not drawn contributes zero, so what
    counts is the norm C of one term: `parameter` is C/scale under add-remove and **2C/scale** under replace-one, even
    if two terms can never be 2C apart (see `_sampled_gaussian`).
    """

    name: str
    mechanism: Mechanism
    parameter: float
    times: int = 1
    group: str | None = None
    sampling: float = 1.0
    symbols: int | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        where = f"of event `{self.name}`"
        _check_mechanism(self.name, self.mechanism)
        check(self.parameter >= 0, f"`parameter` {where} is {self.parameter}; it must be a number of at least 0.")
        check(
            self.mechanism != "none" or math.isinf(self.parameter),
            f"`parameter` {where} is {self.parameter}; a release without noise has an infinite one.",
        )
        check(self.times >= 1, f"`times` {where} is {self.times}; remove an event that never happens.")
        check(self.times <= MAX_RELEASES, f"`times` {where} is {self.times:,}; it must be at most {MAX_RELEASES:,}.")
        check(0 < self.sampling <= 1, f"`sampling` {where} is {self.sampling}; it must lie in (0, 1].")
        check(
            self.sampling == 1 or self.mechanism == "gaussian",
            f"`sampling` {where} is {self.sampling}, which is accounted for Gaussian noise only, and its mechanism is "
            f"`{self.mechanism}`. Use Gaussian noise, or `sampling=1` (valid, without amplification).",
        )
        if self.mechanism == "randomised-response":
            check(
                self.symbols is not None and self.symbols >= 2,
                f"`symbols` {where} is {self.symbols}; randomised response needs the number of answers, at least 2.",
            )
        else:
            check(self.symbols is None, f"`symbols` {where} is {self.symbols}; only randomised response has symbols.")

        shuffled = self.mechanism == "shuffled"
        check(
            (self.batch is not None and self.batch >= 1) if shuffled else self.batch is None,
            f"`batch` {where} is {self.batch}; shuffled answers need the size of a batch, at least 1, and others none.",
        )

    def to_json(self) -> dict[str, object]:
        """A dictionary of plain JSON values. An infinite parameter is written `"inf"`, because JSON has no infinity."""
        return asdict(self) | {"parameter": self.parameter if math.isfinite(self.parameter) else "inf"}


@dataclass(frozen=True)
class Request:
    """A release whose noise is not yet chosen: an `Event` with a share of the budget instead of a parameter.

    `weight` is the share of all `times` releases together, relative to the other requests.
    """

    name: str
    mechanism: Mechanism
    weight: float = 1.0
    times: int = 1
    group: str | None = None
    sampling: float = 1.0
    symbols: int | None = None

    def __post_init__(self) -> None:
        check(
            self.mechanism != "none",
            f"Request `{self.name}` requests a release without noise, which no budget pays for.",
        )
        check(
            0 < self.weight < math.inf,
            f"`weight` of request `{self.name}` is {self.weight}; a share must be a finite number above 0.",
        )
        self.at(1.0)

    def at(self, parameter: float) -> Event:
        """The event that this request becomes at `parameter`."""
        return Event(self.name, self.mechanism, parameter, self.times, self.group, self.sampling, self.symbols)


def _check_mechanism(name: str, mechanism: str) -> None:
    names = ", ".join(f"`{name}`" for name in get_args(Mechanism))
    check(mechanism in get_args(Mechanism), f"`mechanism` of event `{name}` is {mechanism!r}; use one of {names}.")
