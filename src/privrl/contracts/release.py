"""Declarations, which a learner makes before any data is read, and releases, which are all that it sees of people."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
from jaxtyping import Array

from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.statistic import AbstractStatistic

Access = Literal["rounds", "running", "blocks", "choice"]


MAX_RELEASES = 2**22
"""The largest number of releases under one name, and of blocks of a schedule."""


@dataclass(frozen=True)
class Declared:
    """A learner's request for releases, made before any data is read.

    Arguments:
        name: the name of the release in the ledger and the certificate.
        statistic: the statistic; `None` if an earlier release decides it (then it comes with the query).
        access: `"rounds"`: each release answers a new query about all people so far, so the curator must keep raw
            data and pay each time; `"running"`: running sums of terms that are fixed when a person leaves;
            `"blocks"`: sums over disjoint blocks of people, each person in one block; `"choice"`: only the number of
            the largest of several sums (an `AbstractScores`), once, by a noisy maximum. The people whom a choice
            touches may not be touched by another release, so it must have a group of its own or be the only release.
        times: the largest number of releases under this name.
        weight: the share of the budget for all `times` releases together, relative to the other declarations.
        group: declarations of different groups touch disjoint people. Groups are split without looking at the data.
        group_share: the probability that a person is in that group; groups without one share the rest equally.
        sampling: each release includes each person with this probability, independently (Poisson sampling).
        gaussian: whether the sum, or the use of its share, requires Gaussian noise. Laplace noise is then refused.
        epochs: for running sums without a known end: the number of releases of each epoch. Each epoch has a mechanism
            of its own, so a later epoch costs the people of an earlier one nothing. If empty, one mechanism makes all
            releases.
        forget: the weight of all earlier people in the sums when an epoch begins.

    >>> Declared("visits", times=3).touches
    3
    """

    name: str
    statistic: AbstractStatistic | None = None
    access: Access = "rounds"
    times: int = 1
    weight: float = 1.0
    group: str | None = None
    sampling: float = 1.0
    group_share: float | None = None
    gaussian: bool = False
    epochs: tuple[int, ...] = ()
    forget: float = 1.0

    @property
    def touches(self) -> int:
        """The number of releases that one person's record enters (a continual mechanism counts as one)."""
        return self.times if self.access == "rounds" else 1

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"`times` of release `{self.name}` is {self.times}; it must be at least 1.")
        if self.times > MAX_RELEASES:
            raise ValueError(
                f"`times` of release `{self.name}` is {self.times:,}; it must be at most {MAX_RELEASES:,}. Make fewer "
                "releases under one name."
            )
        if not self.weight > 0:
            raise ValueError(f"`weight` of release `{self.name}` is {self.weight}; it must be positive.")
        if not 0 < self.sampling <= 1:
            raise ValueError(f"`sampling` of release `{self.name}` is {self.sampling}; it must lie in (0, 1].")
        if self.group_share is not None and not (self.group is not None and 0 < self.group_share < 1):
            raise ValueError(
                f"`group_share` of release `{self.name}` is {self.group_share}. It must lie in (0, 1), and it needs a "
                "`group`."
            )
        if self.access == "choice" and (self.times, self.sampling) != (1, 1.0):
            raise ValueError(f"Release `{self.name}` is a choice: it requires `times=1` and `sampling=1.0`.")
        if self.epochs and (self.access != "running" or sum(self.epochs) != self.times or min(self.epochs) < 1):
            raise ValueError(
                f'`epochs` of release `{self.name}` are {self.epochs}. They need `access="running"`, must be positive '
                f"and must add up to `times`, which is {self.times}."
            )
        if self.access in ("running", "blocks") and self.statistic is None:
            raise ValueError(f"Release `{self.name}` is streamed, so it needs a `statistic`.")


class Release(eqx.Module):
    """A noisy value with the distribution of its noise: all that a learner ever sees of people."""

    value: Array
    noise: AbstractNoise
