"""Studies with an unknown number of people: the learner's own blocks, in epochs with a mechanism each.

Blocks of a learner that plans at growing distances do not depend on how many people there will be. So their number
grows with the logarithm of the people, and the noise of one mechanism over all of them with the logarithm of that:
what has to be fixed in advance is the number of *releases* of an epoch. The first epoch has `first` of them, each
further one twice as many, up to a public `ceiling` of people. Epochs that double in people instead would pay the noise
of a finished epoch at every doubling: `python -m bench.open_ended` compares them.

With `epoch`, every epoch has this number of people, and `forget` is the weight of older ones when the next begins: for
worlds that drift.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int, Int64

from privrl.contracts.learner import AbstractOnlineLearner
from privrl.contracts.release import Declared
from privrl.privacy.trust.privatizers import PairingError
from privrl.privacy.trust.shuffled import Batched

_MOST_RELEASES = 1_024  # of a study with epochs of equal length
_FEW, _MANY = 2**12, 2**16  # people, to see how a schedule grows


@dataclass(frozen=True)
class OpenEnded:
    """A study without a known end.

    >>> how = {"epsilon": 1, "delta": 1e-6, "episodes": 100, "key": 0}
    >>> privrl.run("riverswim", "dp-ucbvi", open_ended=privrl.OpenEnded(first=4), **how)
    Run(UCBVI, 1 seed of 100 episodes, joint privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        first: the number of releases in the first epoch; each further epoch has twice as many.
        epoch: instead of `first`, the number of people in an epoch, which ends with a release.
        forget: with `epoch`: the weight in [0, 1] that earlier people keep when an epoch begins; 1 forgets nothing,
            0 starts again.
        ceiling: the largest number of people; this number of records fits into 64 bits at any usual budget.

    **Formal guarantee.** Ends of blocks and epochs are functions of these numbers and of the learner's settings, so
    they are public. People of different epochs are different people, because one id has one place in the whole study;
    where people may come several times, all their participations in all epochs are covered together (`Epochs`).

    Raises:
        ValueError: a number is out of its range, or `forget` is given without `epoch`.
    """

    first: int = 256
    epoch: int | None = None
    forget: float = 1.0
    ceiling: int = 2**24

    def __post_init__(self) -> None:
        if self.first < 1 or self.ceiling < 1 or (self.epoch is not None and not 1 <= self.epoch <= self.ceiling):
            raise ValueError(
                f"`first` is {self.first}, `epoch` is {self.epoch} and `ceiling` is {self.ceiling}; all are at least "
                "1, and an epoch has at most as many people as may take part."
            )
        if not 0.0 <= self.forget <= 1.0:
            raise ValueError(f"`forget` is {self.forget}; the weight that older people keep lies in [0, 1].")
        if self.forget < 1.0 and self.epoch is None:
            raise ValueError(f"`forget` is {self.forget}; say also after how many people: `epoch`.")

    def to_json(self) -> dict[str, object]:
        """Plain settings, for the certificate."""
        return {"open-ended": asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> "OpenEnded":
        """What `to_json` wrote."""
        settings: Any = content["open-ended"]
        return cls(**settings)

    def declared(self, learner: AbstractOnlineLearner) -> tuple[Int64[np.ndarray, " B"], tuple[Declared, ...]]:
        """The ends of all blocks up to the ceiling, and the learner's declarations with the epochs in them."""
        name = type(learner).__name__
        if self.forget < 1.0 and not learner.reads_newest_sums:
            raise PairingError(
                f"`{name}` remembers what earlier sums were, so it cannot read sums in which older people weigh less. "
                "Leave `forget` out, or use `UCBVI`."
            )
        _check_growth(learner)
        ends = self._ends(learner)
        epochs = self.epochs(ends)
        declared = learner.declare(len(ends))
        if asked := [d.name for d in declared if d.access == "rounds"]:
            raise PairingError(
                f"`{name}` makes new queries about all people so far ({', '.join(asked)}), each of which costs all of "
                "them something, so it needs a known number of people. Use a learner that publishes running sums, such "
                "as `LSVIUCB`."
            )
        return ends, tuple(
            replace(d, epochs=epochs, forget=self.forget) if d.access == "running" else d for d in declared
        )

    def _ends(self, learner: AbstractOnlineLearner) -> Int64[np.ndarray, " B"]:
        if self.epoch is None:
            return np.asarray(learner.blocks(self.ceiling), np.int64)
        smallest = smallest_block(learner)
        if self.epoch < smallest:
            raise ValueError(f"`epoch` is {self.epoch} people, and a block of this learner has at least {smallest}.")
        whole = self.epoch * np.arange(1, min(self.ceiling // self.epoch, _MOST_RELEASES) + 1)
        own = np.asarray(learner.blocks(int(whole[-1])), np.int64)
        since = own % self.epoch
        inside = own[(since >= smallest) & (self.epoch - since >= smallest)]
        ends = np.union1d(inside, whole)[:_MOST_RELEASES]
        return ends[: np.flatnonzero(ends % self.epoch == 0)[-1] + 1]

    def epochs(self, ends: Int64[np.ndarray, " B"]) -> tuple[int, ...]:
        """How many releases every epoch has."""
        if self.epoch is not None:
            return tuple(int(n) for n in np.diff(np.flatnonzero(ends % self.epoch == 0), prepend=-1))
        lengths: list[int] = []
        left = len(ends)
        while left:
            lengths.append(min(self.first << len(lengths), left))
            left -= lengths[-1]
        return tuple(lengths)

    def note(self, places: int, times: int = 1) -> str:
        """What the certificate states about the number of people, given how often each is counted."""
        each, older = f"of {self.first} releases, each further one of twice as many", ""
        if self.epoch is not None:
            each = f"of {self.epoch:,} people"
        if self.forget < 1.0:
            older = f"; when one begins, all sums so far and their noise are multiplied by {self.forget:g}"
        paid = "one id is counted once in all epochs together, so later epochs cost people of earlier ones nothing"
        if times > 1:
            paid = f"the noise covers every way to spread the {times} counted episodes of one id over all epochs"
        return (
            f"open-ended: the number of people is not fixed, up to {places:,}. Sums are released in epochs ({each}) "
            f"with noise of their own{older}; {paid}"
        )


def smallest_block(learner: AbstractOnlineLearner) -> int:
    """The public least size of a learner's blocks."""
    return max(d.smallest if isinstance(d, Batched) else 1 for d in learner.declare(2))


def until(ends: Int[np.ndarray, " B"], people: int, smallest: int) -> Int[np.ndarray, " reached"]:
    """The blocks of a schedule that a simulation of this number of people reaches; the last block ends with it."""
    return np.append(ends[ends <= people - smallest], people)


def _check_growth(learner: AbstractOnlineLearner) -> None:
    """Refuses a schedule that depends on the number of people, or has about as many blocks as there are people."""
    name, few, many = type(learner).__name__, learner.blocks(_FEW), learner.blocks(_MANY)
    if not np.array_equal(few[:-1], many[: len(few) - 1]):
        raise PairingError(
            f"The blocks of `{name}` depend on how many people there will be, so they cannot be known without it. Give "
            "the number of people, or use a learner such as `LSVIUCB` or `UCBVI`."
        )
    if len(many) > _MANY // 32:
        raise PairingError(
            f"`{name}` plans again after every {_MANY // len(many)} people or so, for ever, and noise grows with the "
            "number of releases. Give the number of people, or let its blocks grow."
        )
