"""What a learner declares, before the first person is touched, and all that it ever sees of people: releases."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
from jaxtyping import Array

from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.statistic import AbstractStatistic

Access = Literal["rounds", "running", "blocks", "choice"]


@dataclass(frozen=True)
class Declared:
    """A learner's request, made before the first person is touched.

    Arguments:
        name: what the release is called in the ledger and the certificate.
        statistic: the statistic; `None` where an earlier release decides it (then it comes with the question).
        access: `"rounds"`: each release answers a new question about everybody so far (so the curator must keep raw
            data and pay each time); `"running"`: running sums of terms that are fixed when a person leaves;
            `"blocks"`: sums over disjoint blocks of people, each person in one block; `"choice"`: only which of several
            sums is the largest (an `AbstractScores`), once, by a noisy maximum. Nobody whom it touches may be touched
            by another release, so it has a group of its own, or is all there is.
        times: the largest number of releases under this name.
        weight: share of the budget, relative to the other declarations (all `times` releases together).
        group: declarations of different groups touch disjoint people, split without looking at their data.
        group_share: the probability with which a person is in that group; groups without one share the rest equally.
        sampling: each release sees each person with this probability, independently (Poisson sampling).
        gaussian: its sum, or what is done with its share, needs Gaussian noise; Laplace noise is refused beforehand.
        epochs: of running sums without a known end: how many of the releases each epoch has. Epochs have mechanisms of
            their own, and a later one costs people of an earlier one nothing. Without, one mechanism makes them all.
        forget: what everybody before weighs in the sums when an epoch begins.
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
        """How many releases one person's record goes into (a continual mechanism counts as one)."""
        return self.times if self.access == "rounds" else 1

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"`times` of release `{self.name}` is {self.times}; declare at least one release.")
        if not self.weight > 0:
            raise ValueError(f"`weight` of release `{self.name}` is {self.weight}; a share must be positive.")
        if not 0 < self.sampling <= 1:
            raise ValueError(f"`sampling` of release `{self.name}` is {self.sampling}; it must lie in (0, 1].")
        if self.group_share is not None and not (self.group is not None and 0 < self.group_share < 1):
            raise ValueError(f"`group_share` of release `{self.name}` is {self.group_share}; a group's lies in (0, 1).")
        if self.access == "choice" and (self.times, self.sampling) != (1, 1.0):
            raise ValueError(f"Release `{self.name}` is a choice, which is made once, among everybody in its group.")
        if self.epochs and (self.access != "running" or sum(self.epochs) != self.times or min(self.epochs) < 1):
            raise ValueError(
                f"`epochs` of release `{self.name}` are {self.epochs}; running sums have them, and their {self.times} "
                "releases are all of them."
            )
        if self.access in ("running", "blocks") and self.statistic is None:
            raise ValueError(f"Release `{self.name}` is streamed, so its `statistic` must be declared with it.")


class Release(eqx.Module):
    """A noisy value with the distribution of its noise: all that a learner ever sees of people."""

    value: Array
    noise: AbstractNoise
