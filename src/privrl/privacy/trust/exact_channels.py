"""A curator's channels in exact arithmetic, for real people: whole numbers, encoded, with noise that is drawn once.

Running sums are released through the encoder of their continual mechanism: with A the prefix sums and B what the
mechanism does to white noise, B^-1 A of the blocks' sums is released with independent noise, and B is applied
afterwards, which is post-processing. Sums of blocks are their own encoding.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, Float64, Int, Int64

from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.privacy.continual.mechanisms import AbstractContinual
from privrl.privacy.continual.participation import Participation
from privrl.privacy.noise.lattice import Lattice, choose_lattice, count_filled
from privrl.privacy.trust.channels import (
    AbstractChannel,
    AbstractCuratorChannel,
    NoiseKind,
    RunningChannel,
    noise_of,
    sensitivity_of,
)
from privrl.privacy.trust.repeated import distance_of_people, encoded_reach, reach

ENCODER_BITS = 30

Noisy = Callable[[Callable[[], Int64[np.ndarray, "..."]]], Int64[np.ndarray, "..."]]
"""Computes an encoded sum and adds exact noise to it, once, and keeps the result; later it only reads it."""


class ExactChannel(AbstractChannel):
    """The exact side of a curator's channel, outside compiled code: the same interface in whole numbers.

    Its memory are the noisy encodings of all blocks so far, and what computes their exact sums, which are read only
    where noise is drawn.

    **Formal guarantee.** The encoder's entries are multiples of 2^-30. A person is in one block, and its columns have
    norm at most `factor`; or in several, and the terms of norm 1 of one person are encoded to at most that
    (`repeated.py`). Encoded sums are rounded to whole numbers once per step. The lattice's noise covers the
    encoded difference of two people and that rounding (`choose_lattice`), so the sequence of noisy encodings is mu-GDP.
    With m terms each, two people fill at most m times as many entries as two records, and truncating the terms of
    either moves their image by at most `factor` sqrt(entries of one): twice as many entries as that cover both.
    """

    statistic: AbstractStatistic
    lattice: Lattice
    mechanism: NoiseKind
    encoder: Int64[np.ndarray, "steps steps"]
    decoder: Float64[np.ndarray, "steps steps"]

    @classmethod
    def of(
        cls,
        channel: AbstractCuratorChannel,
        times: int,
        parameter: float,
        adjacency: Adjacency,
        participation: Participation,
        record: Any,
        query: Any,
    ) -> "ExactChannel":
        """The exact side of running sums, or of sums of blocks.

        Arguments:
            times: the number of blocks.
            parameter: mu of the whole stream (epsilon for Laplace noise).
            participation: how often one person may be in it.
            record, query: what records and queries look like.
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
        """What must be the same wherever sums of this channel are continued: the lattice and the encoder."""
        return self.lattice.to_bytes() + hashlib.blake2b(self.encoder.tobytes(), digest_size=16).digest()

    def init(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        return (), ()

    def term(self, record: Any, query: Any, index: Any = 0, key: Any = None) -> Int64[np.ndarray, "..."]:
        del index, key
        return self.lattice.round_record(self.statistic, record, query)

    def add_noise(self, encoded: Int64[np.ndarray, "..."], randomness: Any) -> Int64[np.ndarray, "..."]:
        """An encoded sum with new noise."""
        return self.lattice.add_noise(noise_of(self.statistic, self.mechanism, self.lattice.scale), encoded, randomness)

    def publish(
        self, memory: Any, total: Callable[[], Int64[np.ndarray, "..."]], t: int | Int[Array, ""], fresh: Noisy
    ) -> tuple[Any, Release]:
        # What an interrupted attempt at this block, or a later one, has left behind does not count.
        block = int(t)
        if min(len(memory[0]), len(memory[1])) < block:
            raise RuntimeError(f"Block {block} is released before block {len(memory[0])}. Nothing was released.")
        sums, noisy = (*memory[0][:block], total), memory[1][:block]
        noisy = (*noisy, fresh(lambda: self.encoded(tuple(one() for one in sums))))
        return (sums, noisy), self.decoded(noisy)

    def encoded(self, blocks: tuple[Int64[np.ndarray, "..."], ...]) -> Int64[np.ndarray, "..."]:
        """The exact sum that is released after the last of these blocks, before noise."""
        weights = self.encoder[len(blocks) - 1, : len(blocks)]
        exact = sum(int(w) * x.astype(object) for w, x in zip(weights, blocks, strict=True) if w)  # any size of integer
        rounded = (np.asarray(exact, object) + (1 << ENCODER_BITS - 1)) >> ENCODER_BITS
        return np.asarray(rounded, object).astype(np.int64)  # of a single number Python makes an int

    def decoded(self, noisy: tuple[Int64[np.ndarray, "..."], ...]) -> Release:
        """What the learner sees after the last of these noisy encoded sums."""
        weights = self.decoder[len(noisy) - 1]
        value = np.tensordot(weights[: len(noisy)], np.stack(noisy), axes=1)
        distribution = noise_of(
            self.statistic, self.mechanism, self.lattice.scale * math.sqrt(float((weights**2).sum()))
        )
        return Release(self.lattice.value(distribution, value), distribution)

    def empty(self) -> Release:
        nothing = noise_of(self.statistic, self.mechanism, 0.0)
        return Release(self.lattice.value(nothing, self.lattice.zeros(self.statistic)), nothing)

    def check_room(self, records: int) -> None:
        """Refuses, before anybody takes part, a stream whose sums over so many records could leave 64 bits.

        A record is in one block j, so an encoded sum is at most max_j |E_tj| times all records.
        """
        weight = float(np.abs(self.encoder.astype(float)).max()) / 2.0**ENCODER_BITS
        self.lattice.check_room(math.ceil(records * max(weight, 1.0)))


def encoder_of(continual: AbstractContinual) -> Int64[np.ndarray, "steps steps"]:
    """B^-1 A of a mechanism, in multiples of 2^-30."""
    encoder = np.linalg.solve(continual.matrix(), continual.sums())
    return np.rint(encoder * 2.0**ENCODER_BITS).astype(np.int64)
