"""Running sums without an end: one epoch of releases after another, each with its own mechanism.

Epoch e has n_e leaves and a continual mechanism A_e = B_e E_e for them, brought to largest column norm 1. A release in
epoch e is the last noisy sum of every finished epoch plus this epoch's own noisy running sum. As a matrix the encoder
is block diagonal, so a leaf is in the columns of one epoch alone: however many epochs follow, they cost the people of
this one nothing (parallel composition). The price is that the noise of finished epochs adds up.

With `forget` = f < 1 everything older is multiplied by f, sums and noise alike, when a new epoch begins: the release is
a sum in which leaves of k epochs ago weigh f^k. That is post-processing of the same noisy encodings, and costs nothing.
f = 0 starts again with every epoch.

**Formal guarantee.** Let s_p(k) be at least how far k participations of one person in an epoch of kind p move its
encoding, for terms of norm 1. Encodings of different epochs are different coordinates, so m participations move all of
them by at most sqrt(max sum_e s_e(m_e)^2) over all ways m_1 + m_2 + ... <= m to spread them, which is what
`sensitivity` computes, by dynamic programming. It is attained if the s_p are and no distance separates a person's
participations. For m = 1 it is 1 for all epochs.

A distance d also holds from one epoch to the next, which that bound does not use. So if there is a distance, the
smaller of that bound and of a second bound is taken. Let G be the Gram matrix of a part's columns and H[i, j], i <= j,
the largest |G[i', j']| with i' >= i and j' - i' >= j - i. If a person's first block in an epoch is i, then block number
a there is i + a d or later, and blocks a < b are (b - a) d apart or further. So k of them move the encoding by at most
W(i, k), W(i, k)^2 = sum_ab H[i + a d, i + b d], and the last is i + (k-1) d or later. Hence no pattern beats those that
take the earliest blocks from some i on in every epoch, over which `_spread` maximises the sum of W(i_e, k_e)^2. If
inner products of columns grow neither with their distance nor later in the epoch, H = |G|; such patterns exist, so for
G >= 0 the bound is attained. It is exact for the square root, truncated or not, and for `Fresh`; for trees it is a
bound.

With Laplace noise the L1 norms of columns add up over a person's blocks (`largest_sum`), in one epoch or in several, so
the bound is exact for every distance.
"""

import functools
from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, Int, Int64

from privrl.contracts.noise_distribution import NoiseKind
from privrl.privacy.continual.mechanisms import AbstractContinual, Draw
from privrl.privacy.continual.participation import Participation, largest_sum


class Epochs(AbstractContinual):
    """Finite mechanisms, one after another. The state is that of the current epoch and two more arrays.

    Arguments:
        parts: the mechanisms, one for each different length.
        order: for every epoch the number of its mechanism in `parts`.
        forget: the weight in [0, 1] that older leaves keep when an epoch begins; public.
    """

    parts: tuple[AbstractContinual, ...]
    order: tuple[int, ...] = eqx.field(static=True)
    forget: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        if not 0.0 <= self.forget <= 1.0:
            raise ValueError(f"`forget` is {self.forget}; it must lie in [0, 1].")
        if len({part.noise for part in self.parts}) != 1:
            raise ValueError("All parts must have the same kind of noise.")

    @classmethod
    def from_lengths(
        cls, kind: Callable[[int], AbstractContinual], lengths: Iterable[int], forget: float = 1.0
    ) -> "Epochs":
        """Epochs with `lengths` leaves each, and a mechanism of this kind in all of them."""
        lengths = list(lengths)
        different = sorted(set(lengths))
        return cls(tuple(map(kind, different)), tuple(map(different.index, lengths)), forget)

    @property
    def steps(self) -> int:
        return sum(self.parts[p].steps for p in self.order)

    @property
    def noise(self) -> NoiseKind:
        return self.parts[0].noise

    @property
    def factor(self) -> float:
        return 1.0

    def columns(self) -> Float64[np.ndarray, " steps"]:
        own = [part.columns() / part.factor for part in self.parts]
        return np.concatenate([own[p] for p in self.order])

    @property
    def _calendar(self) -> "_Calendar":
        return _calendar(tuple(part.steps for part in self.parts), self.order)

    def encoder(self) -> Float64[np.ndarray, "rows steps"]:
        blocks = [part.encoder() / part.factor for part in self.parts]
        rows = sum(len(blocks[p]) for p in self.order)
        whole, row, column = np.zeros((rows, self.steps)), 0, 0
        for p in self.order:
            height, width = blocks[p].shape
            whole[row : row + height, column : column + width] = blocks[p]
            row, column = row + height, column + width
        return whole

    def sums(self) -> Float64[np.ndarray, "steps steps"]:
        epoch = self._calendar.epoch
        age = epoch[:, None] - epoch
        return np.tril(np.power(self.forget, np.maximum(age, 0.0)))

    def carry(self, running: Float[Array, "..."], t: int | Int[Array, ""]) -> Float[Array, "..."]:
        if self.forget == 1.0:
            return running
        return jnp.where(jnp.asarray(self._calendar.begins)[t], self.forget, 1.0) * running

    def sensitivity(self, participation: Participation) -> float:
        if self.noise == "laplace":
            return largest_sum(self.columns(), participation)
        m = participation.times
        moved = np.zeros((len(self.parts), m + 1))
        for p, part in enumerate(self.parts):
            for k in range(1, m + 1):
                often = Participation(k, participation.distance)
                moved[p, k] = (part.sensitivity(often) / part.factor) ** 2
        best = np.zeros(m + 1)
        for p in self.order:
            best = np.array([(best[: k + 1] + moved[p, k::-1]).max() for k in range(m + 1)])
        if participation.distance == 0 or m == 1 or len(self.order) == 1:
            return float(np.sqrt(best[m]))
        earliest = [_earliest(part.encoder() / part.factor, participation) for part in self.parts]
        return float(np.sqrt(min(best[m], _spread([earliest[p] for p in self.order], participation))))

    def init(self, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jnp.zeros((self._rows + 2, *shape))

    def step(
        self, state: Float[Array, "..."], fresh: Draw, t: int | Int[Array, ""]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        calendar, white = self._calendar, fresh(0)
        begins, since = jnp.asarray(calendar.begins)[t], jnp.asarray(calendar.since)[t]
        inner = jnp.where(begins, 0.0, state[:-2])
        finished = jnp.where(begins, self.forget * state[-1], state[-2])

        def within(part: AbstractContinual, inner: Array, white: Array, since: Array) -> tuple[Array, Array]:
            rows = part.init(white.shape).shape[0]
            after, noise = part.step(inner[:rows], lambda _: white, since)
            return inner.at[:rows].set(after), part.factor * noise

        branches = [functools.partial(within, part) for part in self.parts]
        which = jnp.asarray(self.order)[jnp.asarray(calendar.epoch)[t]]
        inner, own = jax.lax.switch(which, branches, inner, white, since)
        noise = finished + own
        return jnp.concatenate([inner, finished[None], noise[None]]), noise

    @property
    def _rows(self) -> int:
        return max(part.init(()).shape[0] for part in self.parts)

    def _variances(self) -> Float64[np.ndarray, " steps"]:
        own = [part.factor**2 * part._variances() for part in self.parts]
        finished, found = 0.0, []
        for p in self.order:
            found.append(finished + own[p])
            finished = self.forget**2 * found[-1][-1]
        return np.concatenate(found)

    def _largest_weights(self) -> Float64[np.ndarray, " steps"]:
        own = [part.factor * part._largest_weights() for part in self.parts]
        finished, found = 0.0, []
        for p in self.order:
            found.append(np.maximum(finished, own[p]))
            finished = self.forget * found[-1][-1]
        return np.concatenate(found)


def _earliest(encoder: Float64[np.ndarray, "rows n"], participation: Participation) -> Float64[np.ndarray, "n times"]:
    """W(i, k)^2: an upper bound on how far k blocks of one epoch move its encoding, the first of them i or later; -inf
    if there are fewer blocks."""
    m, distance = participation.times, participation.distance
    n = encoder.shape[1]
    size = np.abs(encoder.T @ encoder)
    gaps = np.array([np.append(np.diagonal(size, g), np.zeros(g)) for g in range(n)])  # [gap, first]
    gaps = np.maximum.accumulate(np.maximum.accumulate(gaps[::-1, ::-1], axis=0), axis=1)[::-1, ::-1]
    found = np.full((n, m + 1), -np.inf)
    found[:, 0] = 0.0
    for k in range(1, min(m, -(-n // distance)) + 1):
        last = (k - 1) * distance
        i = np.arange(n - last)
        met = sum((gaps[last - a * distance, i + a * distance] for a in range(k - 1)), np.zeros(len(i)))
        found[: n - last, k] = found[: n - last, k - 1] + 2.0 * met + gaps[0, i + last]
    return found


def _spread(epochs: list[Float64[np.ndarray, "_ times"]], participation: Participation) -> float:
    """The largest sum of `_earliest` over epochs, with the distance kept from the last block in one to the next."""
    m, distance = participation.times, participation.distance
    steps = sum(map(len, epochs))
    best = np.zeros((m + 1, steps + distance + 1))  # best[k, t]: of at most k blocks, after which block t may follow
    t = 0
    for earliest in epochs:
        for row in earliest:
            best[:, t + 1] = np.maximum(best[:, t + 1], best[:, t])
            for k in np.flatnonzero(np.isfinite(row))[1:]:
                after = t + int(k) * distance
                best[k:, after] = np.maximum(best[k:, after], best[: m + 1 - k, t] + row[k])
            t += 1
    return float(best[m].max())


class _Calendar(eqx.Module):
    """For every release: its epoch, its number in the epoch, and whether it is the first there."""

    epoch: Int64[np.ndarray, " steps"]
    since: Int64[np.ndarray, " steps"]
    begins: Bool[np.ndarray, " steps"]


@functools.lru_cache(maxsize=64)
def _calendar(lengths: tuple[int, ...], order: tuple[int, ...]) -> _Calendar:
    steps = [lengths[p] for p in order]
    since = np.concatenate([np.arange(n) for n in steps])
    return _Calendar(np.repeat(np.arange(len(steps)), steps), since, since == 0)
