"""A curator's channels in exact arithmetic, for real people: encoded whole numbers with noise that is drawn once.

Running sums are released through the encoder of their continual mechanism. Let A be the prefix sums and B what the
mechanism does to white noise. Then B^-1 A of the blocks' sums is released with independent noise, and B is applied
afterwards, which is post-processing. Sums of blocks are their own encoding.
"""

import hashlib
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Array, Float64, Int, Int64, PyTree

from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.privacy.continual.mechanisms import AbstractContinual
from privrl.privacy.continual.participation import Participation
from privrl.privacy.noise.lattice import Lattice, choose_lattice, count_filled
from privrl.privacy.noise.sources import Randomness
from privrl.privacy.trust.channels import (
    AbstractChannel,
    AbstractCuratorChannel,
    NoiseKind,
    RunningChannel,
    noise_of,
    noise_of_sum,
    sensitivity_of,
)
from privrl.privacy.trust.repeated import distance_of_people, encoded_reach, reach

ENCODER_BITS = 30
"""The entries of an encoder are multiples of 2^-30."""

Noisy = Callable[[Callable[[], Int64[np.ndarray, "..."]]], Int64[np.ndarray, "..."]]
"""Computes an encoded sum, adds exact noise to it once, and stores the result; later it only reads the result."""


class ExactChannel(AbstractChannel):
    """A curator's channel in whole numbers, outside compiled code, with the same interface.

    Its memory holds the noisy encodings of all blocks so far, and functions that compute their exact sums, which are
    called only when noise is drawn.

    **Formal guarantee.** The encoder's entries are multiples of 2^-30. A person is in one block, and its columns have
    norm at most `factor`; or in several, and the terms of norm 1 of one person are encoded to at most that
    (`repeated.py`). All norms are L1 norms for Laplace noise. Encoded sums are rounded to whole numbers once per step.
    The lattice's noise covers the encoded difference of two people and that rounding (`choose_lattice`), so the
    sequence of noisy encodings is mu-GDP (epsilon-differentially private with Laplace noise).
    With m terms each, two people fill at most m times as many entries as two records, and truncating the terms of
    either moves their image by at most `factor` sqrt(entries of one): twice as many entries as that cover both.
    """

    statistic: AbstractStatistic
    lattice: Lattice
    mechanism: NoiseKind
    encoder: Int64[np.ndarray, "steps steps"]
    decoder: Float64[np.ndarray, "steps steps"]

    @classmethod
    def from_channel(
        cls,
        channel: AbstractCuratorChannel,
        times: int,
        parameter: float,
        adjacency: Adjacency,
        participation: Participation,
        record: PyTree,
        query: PyTree,
    ) -> "ExactChannel":
        """The exact channel of running sums, or of sums of blocks.

        Arguments:
            times: the number of blocks.
            parameter: mu of the whole stream (epsilon for Laplace noise).
            participation: how often one person may take part.
            record, query: an example of a record and of a query; only their shapes matter.
        """
        statistic, mechanism, m = channel.statistic, channel.mechanism, participation.times
        if isinstance(channel, RunningChannel):
            decoder, encoder = channel.continual.matrix(), encoder_of(channel.continual)
            exact = encoder / 2.0**ENCODER_BITS
            apart = distance_of_people(statistic, mechanism, adjacency, participation, exact)
            factor, steps = encoded_reach(channel.continual, exact, participation), times
        else:
            decoder, encoder, steps = np.eye(times), np.eye(times, dtype=np.int64) << ENCODER_BITS, 0
            apart = distance_of_people(statistic, mechanism, adjacency, participation)
            factor = reach(mechanism, "blocks", times, participation)
        lattice = choose_lattice(
            parameter=parameter,
            sensitivity=apart,
            norm=sensitivity_of(statistic, mechanism, "add-remove"),
            filled=count_filled(statistic, record, query) * (1 if m == 1 else 2 * m),
            kind="l1" if mechanism == "laplace" else "l2",
            factor=factor,
            rounds=steps,
        )
        return cls(statistic, lattice, mechanism, encoder, decoder)

    @property
    def calibration(self) -> tuple[float, float]:
        return self.lattice.sensitivity, self.lattice.scale

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a term."""
        return self.statistic.steps_shape

    def fingerprint(self) -> bytes:
        """The lattice and the encoder, which must be the same in every process that continues sums of this channel."""
        return self.lattice.to_bytes() + hashlib.blake2b(self.encoder.tobytes(), digest_size=16).digest()

    def init(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        return (), ()

    def term(self, record: PyTree, query: PyTree, index: PyTree = 0, key: PyTree = None) -> Int64[np.ndarray, "..."]:
        del index, key
        return self.lattice.round_record(self.statistic, record, query)

    def add_noise(self, encoded: Int64[np.ndarray, "..."], randomness: Randomness) -> Int64[np.ndarray, "..."]:
        """Adds new noise to an encoded sum."""
        return self.lattice.add_noise(noise_of(self.statistic, self.mechanism, self.lattice.scale), encoded, randomness)

    def publish(
        self, memory: PyTree, total: Callable[[], Int64[np.ndarray, "..."]], t: int | Int[Array, ""], fresh: Noisy
    ) -> tuple[PyTree, Release]:
        # What an interrupted attempt at this block, or at a later one, has left in the memory does not count.
        block = int(t)
        if min(len(memory[0]), len(memory[1])) < block:
            raise RuntimeError(f"Block {block} is released before block {len(memory[0])}. Nothing was released.")
        sums, noisy = (*memory[0][:block], total), memory[1][:block]
        noisy = (*noisy, fresh(lambda: self.encode(tuple(one() for one in sums))))
        return (sums, noisy), self.decode(noisy)

    def encode(self, blocks: tuple[Int64[np.ndarray, "..."], ...]) -> Int64[np.ndarray, "..."]:
        """The exact sum that is released after the last of these blocks, before noise."""
        weights = self.encoder[len(blocks) - 1, : len(blocks)]
        exact = sum(
            int(w) * x.astype(object) for w, x in zip(weights, blocks, strict=True) if w
        )  # Python integers, which cannot overflow
        rounded = (np.asarray(exact, object) + (1 << ENCODER_BITS - 1)) >> ENCODER_BITS
        return np.asarray(rounded, object).astype(np.int64)  # a single number is an `int` here

    def decode(self, noisy: tuple[Int64[np.ndarray, "..."], ...]) -> Release:
        """The release that the learner sees after the last of these noisy encoded sums."""
        weights = self.decoder[len(noisy) - 1]
        value = np.tensordot(weights[: len(noisy)], np.stack(noisy), axes=1)
        largest = float(np.abs(weights).max())
        distribution = noise_of_sum(
            self.statistic, self.mechanism, self.lattice.scale, float((weights**2).sum()), largest
        )
        return Release(self.lattice.value(distribution, value), distribution)

    def empty(self) -> Release:
        nothing = noise_of(self.statistic, self.mechanism, 0.0)
        return Release(self.lattice.value(nothing, self.lattice.zeros(self.statistic)), nothing)

    def check_room(self, records: int) -> None:
        """Refuses a stream whose sums over `records` records might not fit in 64 bits, before the first person takes
        part.

        A record is in one block j, so an encoded sum is at most max_j |E_tj| times all records.
        """
        weight = float(np.abs(self.encoder.astype(float)).max()) / 2.0**ENCODER_BITS
        self.lattice.check_room(math.ceil(records * max(weight, 1.0)))


def encoder_of(continual: AbstractContinual) -> Int64[np.ndarray, "steps steps"]:
    """B^-1 A of a mechanism, in multiples of 2^-30."""
    encoder = np.linalg.solve(continual.matrix(), continual.sums())
    return np.rint(encoder * 2.0**ENCODER_BITS).astype(np.int64)
