"""The sensitivity of every channel of a curator against brute force over all pairs of patterns: up to 8 blocks, m = 4.

Two people with patterns b and b', terms of norm at most 1 and inner products at least -k. They are furthest apart if
all terms of one person are u and all of the other u' with <u, u'> = -k: squared norms and 2k inner products of the
columns add up. Terms of any sign have k = 1, terms without negative entries k = 0. (No entry of an encoder is below 0,
but for trees in whole numbers; there images that point away from each other are those of equal terms.)
"""

import itertools
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.continual.participation import Participation
from privrl.privacy.trust.exact_channels import ExactChannel
from privrl.privacy.trust.privatizers import Central

STEPS = 8
LEAST = [-1.0, -0.25, 0.0]
OFTEN = [Participation(m, d) for m in (1, 2, 3, 4) for d in (0, 1, 2, 3)]


class Ball(AbstractStatistic):
    """A vector of norm at most 1, in a cone in which two of them have an inner product of at least `least`."""

    least: float = eqx.field(static=True, default=-1.0)
    shape: tuple[int, ...] = eqx.field(static=True, default=(3,))
    symmetric: bool = eqx.field(static=True, default=False)

    @property
    def nonnegative(self):
        return self.least == 0.0

    @property
    def least_inner_product(self):
        return self.least

    def contribution(self, record, query):
        return record

    def l2(self, adjacency):
        return math.sqrt(2.0 - 2.0 * self.least) if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return math.sqrt(3.0) * (2.0 if adjacency == "replace-one" else 1.0)


def patterns(participation, steps=STEPS):
    """How often each block occurs, in every way to take part as often as allowed or less."""
    found = [
        np.bincount(pattern, minlength=steps)
        for m in range(1, participation.times + 1)
        for pattern in itertools.combinations_with_replacement(range(steps), m)
        if all(b - a >= participation.distance for a, b in itertools.pairwise(pattern))
    ]
    return np.array(found, float)


def furthest(encoder, participation, least):
    """The largest distance of two people, over all pairs of patterns; with m = 1 both have the same place."""
    images = patterns(participation) @ encoder.T
    if participation.times == 1:
        return np.linalg.norm(images, axis=1).max() * math.sqrt(2.0 - 2.0 * least)
    squares = (images**2).sum(axis=1)
    inner = images @ images.T
    products = 2.0 * np.maximum(-least * inner, -inner)
    return float(np.sqrt((squares[:, None] + squares + products).max()))


def channel_of(access, participation, least=-1.0, continual="best", mechanism="gaussian", rho=0.5, steps=STEPS):
    budget = {"rho": rho} if mechanism == "gaussian" else {"epsilon": 1.0, "mechanism": mechanism}
    private = Central(**budget, continual=continual)
    declared = Declared("x", Ball(least), access=access, times=steps)
    ledger = private.calibrate([declared], participation)
    return private.channel(declared, ledger), ledger.parameter("x")


def exactly(channel, participation, parameter=1.0):
    return ExactChannel.from_channel(channel, STEPS, parameter, "replace-one", participation, jnp.zeros(3), None)


@pytest.mark.parametrize("least", LEAST)
@pytest.mark.parametrize("continual", ["square-root", "tree", "honaker", "fresh"])
def test_running_sums_cover_every_pair_of_patterns(continual, least):
    """Exact for Toeplitz encoders, in floating point and in whole numbers; the largest slack of trees is pinned."""
    slack = []
    for often in OFTEN:
        channel, parameter = channel_of("running", often, least, continual)
        true = furthest(channel.continual.encoder(), often, least)
        slack.append(float(channel.sensitivity) / true)
        assert float(channel.scale) == pytest.approx(float(channel.sensitivity) / parameter)
        exact = exactly(channel, often, parameter)
        encoded = furthest(np.abs(exact.encoder / 2.0**30), often, least)
        signed = furthest(exact.encoder / 2.0**30, often, least)
        assert exact.lattice.sensitivity >= max(signed, encoded if continual == "square-root" else 0.0) * (1 - 1e-12)
        if continual == "square-root":
            assert exact.lattice.sensitivity == pytest.approx(true, rel=1e-6)
    limit = {"square-root": 1.0, "fresh": 1.0, "tree": 1.19, "honaker": 1.19}[continual]
    assert min(slack) >= 1 - 1e-12 and max(slack) <= limit * (1 + 1e-9), max(slack)


@pytest.mark.parametrize("least", LEAST)
def test_sums_of_blocks_cover_every_pair_of_patterns(least):
    for often in OFTEN:
        channel, parameter = channel_of("blocks", often, least)
        true = furthest(np.eye(STEPS), often, least)
        assert float(channel.sensitivity) == pytest.approx(true, rel=1e-12)
        assert exactly(channel, often, parameter).lattice.sensitivity == pytest.approx(true, rel=1e-6)


@pytest.mark.parametrize("access", ["blocks", "rounds"])
def test_laplace_noise_and_later_queries_cover_all_terms(access):
    for often in OFTEN:
        m = often.times
        for least in LEAST:  # terms without negative entries are as far apart in L1 as any
            laplace = channel_of(access, often, least, mechanism="laplace")[0]
            assert float(laplace.sensitivity) == pytest.approx(2 * m * math.sqrt(3.0))
            if access == "rounds":
                gaussian = channel_of(access, often, least)[0]
                assert float(gaussian.sensitivity) == pytest.approx(m * math.sqrt(2.0 - 2.0 * least))


@pytest.mark.parametrize("least", LEAST)
def test_whole_numbers_of_two_people_are_within_the_sensitivity(least):
    """Encoded, rounded sums of people with patterns and records of their own, in units: rounding is covered too."""
    often, rng = Participation(4, 1), np.random.default_rng(0)
    channel, parameter = channel_of("running", often, least)
    exact = exactly(channel, often, parameter)
    ways = patterns(often)
    best = ways[np.argmax(np.linalg.norm(ways @ channel.continual.encoder().T, axis=1))]
    limit = exact.lattice.sensitivity / exact.lattice.granularity
    largest = 0.0

    def encodings(pattern, record):
        terms = [exact.term(jnp.asarray(record), None) * int(n) for n in pattern]
        return np.concatenate([exact.encode(tuple(terms[: t + 1])) for t in range(STEPS)]).astype(float)

    for _ in range(12):
        one, other = (ways[i] if rng.random() < 0.5 else best for i in rng.integers(len(ways), size=2))
        u, v = np.linalg.qr(rng.normal(size=(3, 2)))[0].T
        pair = u, least * u + math.sqrt(1.0 - least**2) * v
        apart = np.linalg.norm(encodings(one, pair[0]) - encodings(other, pair[1]))
        largest = max(largest, apart)
        assert apart <= limit
    assert largest >= 0.999999 * limit  # and it is reached


def test_signed_terms_that_are_never_opposite_pay_for_their_own_inner_products():
    """Four visits ten blocks apart, terms whose products are at least -1/4: sqrt 10, not 4. And it is reached."""
    often, steps = Participation(4, 10), 40
    channel, _ = channel_of("blocks", often, -0.25, steps=steps)
    assert float(channel.sensitivity) == pytest.approx(math.sqrt(10.0))
    assert float(channel_of("blocks", often, steps=steps)[0].sensitivity) == pytest.approx(4.0)
    rng, across = np.random.default_rng(0), math.sqrt(0.625)  # a cone around (1, 0, 0), of cosine sqrt .375

    def person():
        """Terms anywhere in the cone, half of them at its edge, in blocks of their own choice."""
        blocks = np.cumsum([rng.integers(10), *rng.integers(10, 12, size=3)])
        terms = np.zeros((steps, 3))
        for block in blocks[blocks < steps]:
            angle, wide, long = rng.choice([0.0, np.pi]), *np.maximum(rng.random(2), rng.integers(2, size=2))
            side = wide * across
            terms[block] = long * np.array([math.sqrt(1 - side**2), side * math.cos(angle), side * math.sin(angle)])
        return terms

    people = np.array([person() for _ in range(300)])
    cells = people.reshape(-1, 3)
    assert (cells @ cells.T).min() >= -0.25 - 1e-12
    edge = np.zeros((2, steps, 3))
    edge[:, ::10] = [[[math.sqrt(0.375), across, 0.0]], [[math.sqrt(0.375), -across, 0.0]]]
    for one in (np.eye(steps), channel_of("running", often, -0.25, steps=steps)[0].continual.encoder()):
        access = "blocks" if (one == np.eye(steps)).all() else "running"
        bound = float(channel_of(access, often, -0.25, steps=steps)[0].sensitivity)
        images = np.einsum("st,ptd->psd", one, np.concatenate([people, edge])).reshape(302, -1)
        squares = (images**2).sum(axis=1)
        apart = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * images @ images.T, 0.0))
        assert apart.max() == pytest.approx(bound, rel=1e-9) and apart[-1, -2] == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("access", ["running", "blocks", "rounds"])
def test_a_positive_least_inner_product_lowers_no_noise(access):
    """All terms may be the same unit vector, but a person who does not come has the term zero."""
    for often in OFTEN[4:]:
        alike, zero = (float(channel_of(access, often, least)[0].sensitivity) for least in (0.9, 0.0))
        assert alike == zero


def test_cutting_off_is_chosen_where_it_makes_less_noise():
    once, together = channel_of("running", Participation(1))[0], channel_of("running", Participation(4))[0]
    apart = channel_of("running", Participation(4, 2))[0]
    kinds = [type(channel.continual).__name__ for channel in (once, together, apart)]
    assert kinds == ["SquareRoot", "SquareRoot", "Banded"]
    assert float(together.sensitivity) == pytest.approx(4 * float(once.sensitivity))
    assert float(apart.sensitivity) < 0.6 * float(together.sensitivity)


def test_once_is_what_it_always_was():
    """The sensitivity of one record for another, times the largest column, to the last bit."""
    for access in ("running", "blocks", "rounds"):
        channel, _ = channel_of(access, Participation(1), least=0.0)
        factor = channel.continual.factor if access == "running" else 1.0
        assert float(channel.sensitivity) == math.sqrt(2.0) * factor
