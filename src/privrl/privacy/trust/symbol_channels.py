"""Local privacy by symbols: each person answers with a random set of symbols that probably contains the true one."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int64, PRNGKeyArray, PyTree

from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractCategorical
from privrl.privacy.noise.discrete import select
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.sources import Randomness, uniform
from privrl.privacy.noise.subset import SubsetSelection
from privrl.privacy.trust.channels import Number
from privrl.privacy.trust.local_channels import AbstractLocalChannel, AbstractReports
from privrl.privacy.trust.padded_batches import batches


class SymbolChannel(AbstractLocalChannel):
    """Each person answers the public query with a random set of symbols that probably contains the true one.

    Sums count hits, 1 for each symbol in a set. These are whole numbers, so sums do not depend on their order. They
    are debiased when they are released.

    **Formal guarantee.** What leaves the person is the true symbol after subset selection: epsilon-locally private,
    for every record. A symbol out of range would reveal itself, so it is clipped to the range first. Everything after
    that (`decode`, sums) is post-processing.
    """

    statistic: AbstractCategorical
    response: SubsetSelection
    running: bool = eqx.field(static=True)

    @property
    def calibration(self) -> None:
        return None

    def report(self, record: PyTree, query: PyTree, index: Number, key: PRNGKeyArray) -> Bool[Array, " k"]:
        return self.response.respond(self.symbol(record, query, index), self.uniforms(key))

    def symbol(self, record: PyTree, query: PyTree, index: Number) -> Int[Array, ""]:
        """A person's true symbol, clipped to the range."""
        return jnp.clip(self.statistic.symbol(record, query, jnp.asarray(index)), 0, self.statistic.num_symbols - 1)

    def uniforms(self, key: PRNGKeyArray) -> Float[Array, " _"]:
        """The random numbers that one report needs."""
        return uniform(key, (self.statistic.num_symbols + 1,))

    def decode(self, report: Bool[Array, " k"], query: PyTree, index: Number) -> tuple[Array, Array]:
        number, everything = jnp.asarray(index), jnp.ones(self.statistic.num_symbols)
        hits = self.statistic.tally(report.astype(float), query, number)
        return hits, self.statistic.tally(everything, query, number)

    def to_release(self, value: Array, reports: Array) -> Release:
        estimate = self.response.debias(value, reports)
        return Release(estimate, self.response.noise(estimate, reports))

    def reports(self) -> "SymbolReports":
        return SymbolReports(self, int(self.response.size), float(self.response.epsilon))


class SymbolReports(AbstractReports):
    """Sorted sets of symbols. Sums count hits, and how often each entry was queried.

    `size` and `epsilon` are those of the channel's answers, as plain numbers.
    """

    channel: SymbolChannel
    size: int = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)

    @property
    def calibration(self) -> None:
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    @property
    def length(self) -> int:
        return 2 * math.prod(self.statistic.shape)

    @property
    def largest(self) -> int:
        return self.channel.statistic.num_symbols

    def truth(self, record: PyTree, query: PyTree, index: int) -> Int64[np.ndarray, ""]:
        return np.asarray(_symbol(self.channel, record, query, jnp.asarray(index)), np.int64)

    def randomise(self, truth: Int64[np.ndarray, ""], randomness: Randomness) -> Int64[np.ndarray, " size"]:
        if isinstance(randomness, Words):
            return select(randomness, int(truth), self.largest, self.size, self.epsilon)
        held = self.channel.response.respond(jnp.asarray(truth), self.channel.uniforms(randomness))
        return np.flatnonzero(np.asarray(held)).astype(np.int64)

    def checker(self) -> Callable[[np.ndarray], None]:
        shape, size, largest = self.shape, self.size, self.largest

        def check(report: np.ndarray) -> None:
            if report.shape == shape and report.dtype == np.int64:
                symbols = report.tolist()
                if symbols[0] > -1 and symbols[-1] < largest and all(map(int.__lt__, symbols, symbols[1:])):
                    return
            raise ValueError(f"Expected a report of {size} different symbols in [0, {largest}), in increasing order.")

        return check

    def steps_of_each(
        self, reports: Int64[np.ndarray, "B size"], query: PyTree, indices: Int64[np.ndarray, " B"]
    ) -> Int64[np.ndarray, "B length"]:
        held = np.zeros((len(reports), self.largest), bool)
        np.put_along_axis(held, reports, True, axis=1)
        parts = [
            np.asarray(_decode(self.channel, held[rows], indices[rows], query))[:some]
            for rows, some in batches(len(reports))
        ]
        return np.concatenate(parts)

    def totals(self, steps: Int64[np.ndarray, " length"]) -> tuple[Array, Array]:
        hits, asked = steps.astype(np.float64).reshape(2, *self.statistic.shape)
        return jnp.asarray(hits), jnp.asarray(asked)


_symbol = eqx.filter_jit(SymbolChannel.symbol)


@eqx.filter_jit
def _decode(
    channel: SymbolChannel, held: Bool[Array, "B k"], indices: Int[Array, " B"], query: PyTree
) -> Int64[Array, "B length"]:
    def decode_one(report: Bool[Array, " k"], index: Int[Array, ""]) -> Int64[Array, " length"]:
        hits, asked = channel.decode(report, query, index)
        return jnp.concatenate([hits.reshape(-1), asked.reshape(-1)]).astype(jnp.int64)

    return jax.vmap(decode_one)(held, indices)
