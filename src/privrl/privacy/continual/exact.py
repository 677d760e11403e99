"""Streamed sums for real people: whole numbers from the person to the release, whatever the continual mechanism.

A continual mechanism releases A x + B z: prefix sums A x of the blocks x, and noise B z. As B is lower triangular with
a positive diagonal, that is B (E x + z) with E = B^-1 A: it says as much as the encoded sums E x + z, which need
independent noise only. These are what we release, on a lattice; multiplying by B is post-processing.

**Formal guarantee.** E is rounded to multiples of 2^-30, and every encoded sum to whole units. A person in block j with
units n (at most D/g + sqrt(m) from anybody else's, see `lattice.py`) moves the encoded sums by at most
max_j ||E e_j|| (D/g + sqrt(m)) + sqrt(m steps), the last term for rounding. Discrete Gaussian noise for that distance
over mu makes the whole sequence of releases mu-GDP, adaptively chosen blocks included.
"""

import hashlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, Int64, PRNGKeyArray

from privrl.contracts.noise import AbstractNoise
from privrl.contracts.release import Release
from privrl.contracts.statistic import Adjacency
from privrl.privacy.noise.lattice import filled_by, lattice_for, lattice_total
from privrl.privacy.noise.sources import standard_laplace, standard_normal
from privrl.privacy.noise.symmetric import packed
from privrl.privacy.noise.words import Words
from privrl.privacy.trust.channels import AbstractChannel, BlockChannel, RunningChannel, law_of, sensitivity_of

_ENCODER_BITS = 30


class ExactStream:
    """The exact side of a curator's channel, outside compiled code.

    Arguments:
        channel: running sums, or sums of blocks.
        times: the number of blocks.
        parameter: mu of the whole stream (epsilon for Laplace noise).
        record, question: what records and questions look like.
    """

    def __init__(
        self,
        channel: AbstractChannel,
        times: int,
        parameter: float,
        adjacency: Adjacency,
        record: Any,
        question: Any,
    ) -> None:
        statistic = channel.statistic
        if isinstance(channel, RunningChannel):
            self._mechanism: Any = "gaussian"
            self._decoder = channel.continual.matrix()
            encoder = np.linalg.solve(self._decoder, np.tril(np.ones((times, times))))
            self._variance = (self._decoder**2).sum(axis=1)
            steps = times
        else:
            assert isinstance(channel, BlockChannel)
            self._mechanism = channel.mechanism
            encoder, steps = np.eye(times), 0
            self._decoder, self._variance = np.eye(times), np.ones(times)
        self.shape = statistic.units_shape
        self._encoder = np.rint(encoder * 2.0**_ENCODER_BITS).astype(np.int64)
        self.statistic = statistic
        self.lattice = lattice_for(
            parameter=parameter,
            sensitivity=sensitivity_of(statistic, self._mechanism, adjacency),
            norm=sensitivity_of(statistic, self._mechanism, "add-remove"),
            filled=filled_by(statistic, record, question),
            kind="l1" if self._mechanism == "laplace" else "l2",
            factor=math.sqrt(float((self._encoder.astype(float) ** 2).sum(axis=0).max())) / 2.0**_ENCODER_BITS,
            steps=steps,
        )

    @property
    def _law(self) -> AbstractNoise:
        return law_of(self.statistic, self._mechanism, self.lattice.scale)

    @property
    def law(self) -> tuple[float, float]:
        """The sensitivity and the scale of the noise that it draws, for the ledger."""
        return self.lattice.sensitivity, self.lattice.scale

    def fingerprint(self) -> bytes:
        """What must be the same wherever sums of this stream are continued: the lattice and the encoder."""
        return self.lattice.to_bytes() + hashlib.blake2b(self._encoder.tobytes(), digest_size=16).digest()

    def units(self, record: Any, question: Any) -> Int64[np.ndarray, "..."]:
        """One person's term, in whole units."""
        alone = jax.tree.map(lambda x: jnp.asarray(x)[None], record)
        return lattice_total(self.statistic, alone, question, jnp.ones(1, bool), self.lattice)

    def encoded(self, blocks: Int64[np.ndarray, "t *shape"]) -> Int64[np.ndarray, "..."]:
        """The exact sum that is released after the last of these blocks, before noise."""
        weights = self._encoder[len(blocks) - 1, : len(blocks)]
        exact = sum(int(w) * x.astype(object) for w, x in zip(weights, blocks, strict=True) if w)  # any size of integer
        rounded = (np.asarray(exact, object) + (1 << _ENCODER_BITS - 1)) >> _ENCODER_BITS
        return rounded.astype(np.int64)

    def noisy(self, encoded: Int64[np.ndarray, "..."], words: Words) -> Int64[np.ndarray, "..."]:
        """The encoded sum with exact noise."""
        return self.lattice.noisy(self._law, encoded, words)

    def noisy_in_simulation(self, encoded: Int64[np.ndarray, "..."], key: PRNGKeyArray) -> Int64[np.ndarray, "..."]:
        """The encoded sum with the seeded noise of a simulation, rounded to the lattice. It protects nobody."""
        draw = standard_normal if self._law.white == "normal" else standard_laplace
        noise = self._law.scaled(draw(key, self.statistic.shape))
        entries = packed(noise) if self.statistic.symmetric else noise
        return encoded + np.rint(np.asarray(entries) / self.lattice.granularity).astype(np.int64)

    def release(self, noisy: list[Int64[np.ndarray, "..."]]) -> Release:
        """What the learner sees after the last of these noisy encoded sums."""
        t = len(noisy) - 1
        decoded: Float64[np.ndarray, "..."] = np.tensordot(self._decoder[t, : t + 1], np.stack(noisy), axes=1)
        law = law_of(self.statistic, self._mechanism, self.lattice.scale * math.sqrt(self._variance[t]))
        return Release(self.lattice.value(law, decoded), law)

    def check_room(self, records: int) -> None:
        """Refuses, before anybody takes part, a stream whose sums over so many records could leave 64 bits."""
        weight = float(np.abs(self._encoder.astype(float)).sum(axis=1).max()) / 2.0**_ENCODER_BITS
        self.lattice.check_room(math.ceil(records * max(weight, 1.0)))
