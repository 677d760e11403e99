"""Released functions: the norm they are calibrated in, what is published, and that queries cost nothing."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import privrl
from privrl.contracts.release import Declared
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.accounting.ledger import Ledger, OverspentError
from privrl.privacy.functions.paths import mesh_path, mesh_points, whiten, whitening_factor
from privrl.privacy.functions.released import ReleasedFunction, best_beta, rkhs_norm, tent_distance, whiten_functions
from privrl.privacy.noise.lattice import Lattice, LatticeError
from privrl.privacy.noise.sources import AbstractSource, Seeded, System
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.people import AbstractPeople
from privrl.privacy.trust.privatizers import Central, NonPrivate


class Nobody(AbstractPeople):
    """A released function is no sum over people, so nobody is ever looked at."""

    num_units = 0
    records_per_unit = 1

    def total(self, statistic, included, arithmetic):
        raise AssertionError

    filled = part = unit_draws = total


def curator(
    source: AbstractSource, mu: float = 1.0, times: int = 1, store: ReleaseStore | None = None
) -> tuple[Curator, Ledger]:
    """Who releases `f` so many times, each of them at mu."""
    ledger = Central(rho=times * mu**2 / 2).calibrate([Declared("f", times=times)])
    if store is not None:
        store.open_study({"title": "f"}, ledger.limits())
    return Curator(Nobody(), ledger, source, "gaussian", store), ledger


def sources() -> list[AbstractSource]:
    return [Seeded(jax.random.key(7)), System()]


def kernel(points: np.ndarray, beta: float) -> np.ndarray:
    return np.exp(-beta * np.abs(points[:, None] - points[None, :]))


def tent(depth: int, centre: float, height: float, half_width: float) -> jax.Array:
    return height * jnp.maximum(0.0, 1.0 - jnp.abs(mesh_points(depth) - centre) / half_width)


# ------------------------------------------------------------------------------------------------------------- the norm


@settings(deadline=None, max_examples=20)
@given(beta=st.floats(0.1, 20.0), seed=st.integers(0, 1000))
def test_norm_is_that_of_the_inverse_kernel(beta: float, seed: int) -> None:
    f = np.random.default_rng(seed).standard_normal((3, 17))
    inverse = np.linalg.inv(kernel(np.linspace(0, 1, 17), beta))
    np.testing.assert_allclose(
        rkhs_norm(jnp.asarray(f), beta), math.sqrt(np.einsum("mi,ij,mj", f, inverse, f)), rtol=1e-9
    )
    np.testing.assert_allclose(rkhs_norm(jnp.asarray(f[0]), beta), math.sqrt(f[0] @ inverse @ f[0]), rtol=1e-9)


def test_norm_grows_with_the_mesh_towards_the_integral() -> None:
    f = lambda x: x**2 - 0.3 * x + 1.0  # noqa: E731
    beta = 2.5
    norms = [float(rkhs_norm(f(mesh_points(depth)), beta)) for depth in (1, 5, 12)]
    assert norms == sorted(norms)
    x = np.linspace(0, 1, 200_001)
    integral = np.trapezoid((2 * x - 0.3) ** 2 + beta**2 * f(x) ** 2, x)
    assert norms[-1] == pytest.approx(math.sqrt((f(0.0) ** 2 + f(1.0) ** 2) / 2 + integral / (2 * beta)), rel=1e-7)


@pytest.mark.parametrize(("height", "half_width"), [(0.1, 0.125), (2.0, 0.25)])
def test_a_tent_and_the_kernel_that_sees_least_of_it(height: float, half_width: float) -> None:
    best = best_beta(half_width)
    assert tent_distance(height, half_width, best) == pytest.approx(1.075 * height, rel=1e-3)
    grid = best * np.exp(np.linspace(-1, 1, 401))  # the middle one is the best
    assert np.argmin([tent_distance(height, half_width, beta) for beta in grid]) == 200
    for beta in (best, 0.3 * best, 3.0 * best):
        whole = float(rkhs_norm(tent(14, 0.5, height, half_width), beta))
        assert whole == pytest.approx(tent_distance(height, half_width, beta), rel=1e-5)
        assert whole <= tent_distance(height, half_width, beta)
        for centre in np.linspace(0, half_width, 9):  # an edge cuts it
            assert rkhs_norm(tent(12, float(centre), height, half_width), beta) <= whole


# ----------------------------------------------------------------------------------------------------- what is released


@pytest.mark.parametrize("source", sources(), ids=["seeded", "exact"])
def test_the_noise_of_a_release_is_a_path(source: AbstractSource) -> None:
    """Zero functions, one path per row: covariance within 4.7 standard errors at unordered points, both noise modes."""
    rows, beta, rng = 3_000, 3.0, np.random.default_rng(5)
    ask, _ = curator(source, mu=0.5)
    released = ask.function("f", jnp.zeros((rows, 65)), distance=0.2, beta=beta, bound=1.0)
    points = np.append(rng.permutation(rng.choice(64, 6, replace=False)), 64) / 64
    g, k = np.asarray(released(jnp.asarray(points))) / 0.4, kernel(points, beta)
    z = (g.T @ g / rows - k) / np.sqrt((1 + k**2) / rows)
    assert g.shape == (rows, 7) and np.abs(z).max() < 4.7
    assert np.abs(g.mean(axis=0) * math.sqrt(rows)).max() < 4.7
    assert float(released.scale) == pytest.approx(0.4, rel=1e-6)
    assert released.depth == 6 and released.noise.shape == (rows, 65)
    white = np.asarray(whiten(released.values, beta)) / float(released.noise.scale)
    assert stats.kstest(white[:300].ravel(), "norm").pvalue > 1e-5


@pytest.mark.parametrize("source", sources(), ids=["seeded", "exact"])
def test_same_query_same_answer_also_after_saving(source: AbstractSource, tmp_path) -> None:
    ask, ledger = curator(source)
    f = jnp.stack([jnp.sin(3 * mesh_points(5)), mesh_points(5) ** 2])
    released = ask.function("f", f, distance=1e-6, beta=2.0, bound=1.0)
    np.testing.assert_allclose(released.values, f, atol=1e-5)  # little noise: the functions are there
    assert not np.array_equal(released.values, f)
    released.save(tmp_path / "f")
    points = jnp.asarray(np.random.default_rng(6).random((4, 25)))
    answers = np.asarray(released(points))
    again = ReleasedFunction.load(tmp_path / "f")
    for published in (released, again):
        assert np.array_equal(published(points), answers)
        assert np.array_equal(published(points[::-1, ::-1]), answers[:, ::-1, ::-1])
    assert answers.shape == (2, 4, 25)
    assert (again.scale, again.beta, again.depth) == (released.scale, released.beta, released.depth)
    grid = mesh_points(5)
    nearby = grid.at[1:-1].add(0.015)  # less than half a cell
    assert np.array_equal(released(nearby), released.values)
    for point in (-0.01, 1.01, math.nan):
        with pytest.raises(RuntimeError, match=r"\[0, 1\]"):
            released(jnp.asarray(point)).block_until_ready()
    (noise,) = ledger.releases()[0]["noise"]
    assert noise["scale"] == float(released.scale) and noise["sensitivity"] <= noise["scale"]
    with pytest.raises(OverspentError):
        ask.function("f", f, distance=1e-6, beta=2.0, bound=1.0)


def test_a_published_function_holds_nothing_else() -> None:
    ask, _ = curator(Seeded(jax.random.key(0)))
    released = ask.function("f", jnp.ones(17), distance=1.0, beta=1.0, bound=1.0)
    assert {field.name for field in dataclasses.fields(released)} == {"values", "beta", "scale"}
    assert sum(leaf.size for leaf in jax.tree.leaves(released)) == 17 + 2


def test_files_that_are_no_released_function_are_refused(tmp_path) -> None:
    path, ones = tmp_path / "f", np.ones(5)
    whole = {"format": np.asarray(1), "kind": np.asarray("function"), "values": ones, "beta": ones[0], "scale": ones[0]}
    contents = [
        {"values": ones},
        whole | {"kind": np.asarray("linear function")},
        whole | {"format": np.asarray(2)},
        whole | {"values": np.full(5, np.nan)},
        whole | {"values": np.ones(5, np.int64)},
        whole | {"values": np.ones(4)},
        whole | {"values": np.asarray([{}] * 5, object)},  # pickled
    ]
    for content in contents:
        with open(path, "wb") as file:
            np.savez(file, **content)
        with pytest.raises(ValueError, match="not a released function|2\\^depth"):
            ReleasedFunction.load(path)
    path.write_bytes(b"PK\x03\x04 no zip file")
    with pytest.raises(ValueError, match="not a released function"):
        ReleasedFunction.load(path)


def test_without_a_budget_the_function_comes_back() -> None:
    ledger = NonPrivate().calibrate([Declared("f")])
    f = jnp.sin(mesh_points(4))
    released = Curator(Nobody(), ledger, System(), "gaussian").function("f", f, distance=1.0, beta=2.0, bound=1.0)
    np.testing.assert_allclose(released.values, f, atol=1e-14)
    assert released.scale == 0.0


# ---------------------------------------------------------------------------------------------------------- the privacy


def privacy_losses(released: ReleasedFunction, points: np.ndarray, one: jax.Array, other: jax.Array) -> np.ndarray:
    """ln(density under `one` / density under `other`) of all answers at distinct points, for each row."""
    order = np.sort(points)
    a = np.asarray(released(jnp.asarray(order)))
    at = np.round(order * 2**released.depth).astype(int)
    sigma, r = float(released.scale), np.exp(-float(released.beta) * np.diff(order))

    def square(x: np.ndarray) -> np.ndarray:  # the path is Markov: x^T K^-1 x for points that are not equally spaced
        return x[..., 0] ** 2 + ((x[..., 1:] - r * x[..., :-1]) ** 2 / (1 - r**2)).sum(axis=-1)

    return (square(a - np.asarray(other)[at]) - square(a - np.asarray(one)[at])) / (2 * sigma**2)


def least_epsilon(losses: np.ndarray, delta: float) -> float:
    """What epsilon must be, with confidence 1 - 2e-4 (Clopper and Pearson), if `loss > 0` is so frequent in each half.

    The first half of the losses is from the one world, the second from the other.
    """
    n = len(losses) // 2
    hits, misses = int((losses[:n] > 0).sum()), int((losses[n:] > 0).sum())
    low = stats.beta.ppf(1e-4, hits, n - hits + 1)
    high = stats.beta.ppf(1 - 1e-4, misses + 1, n - misses)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


@pytest.mark.parametrize("source", sources(), ids=["seeded", "exact"])
def test_ten_thousand_queries_are_no_more_than_one_release(source: AbstractSource) -> None:
    """The best attack on all answers: losses of mean +-mu^2/2 and variance mu^2 (4.7 se), epsilon within the claim."""
    depth, rows, mu, w = 14, 120, 1.0, 0.125
    f = jnp.cos(5 * mesh_points(depth))
    g = f + tent(depth, 0.4, 0.3, w)
    beta = best_beta(w)
    distance = tent_distance(0.3, w, beta)
    worlds = jnp.concatenate([jnp.broadcast_to(f, (rows, f.size)), jnp.broadcast_to(g, (rows, g.size))])
    rng = np.random.default_rng(8)
    points = rng.choice(2**depth + 1, 10_000, replace=False) / 2**depth

    ask, _ = curator(source, mu)
    released = ask.function("f", worlds, distance=distance, beta=beta, bound=2.0)
    losses = privacy_losses(released, points, f, g)
    mean = np.append(losses[:rows], -losses[rows:])
    assert abs(mean.mean() - mu**2 / 2) < 4.7 * mu / math.sqrt(2 * rows)
    assert abs(mean.var(ddof=1) - mu**2) < 4.7 * mu**2 * math.sqrt(2 / (2 * rows - 1))
    assert least_epsilon(losses, 0.05) <= gdp_epsilon(mu, 0.05)


def test_the_attack_finds_noise_that_is_too_small_or_drawn_anew() -> None:
    """The same attack with a quarter of the noise, and on answers with fresh noise for each query."""
    rows, depth, beta = 150, 8, 8.0
    f, g = jnp.zeros(2**depth + 1), tent(depth, 0.5, 0.3, 0.2)
    sigma, points = float(rkhs_norm(g, beta)), np.asarray(mesh_points(depth))
    worlds = jnp.concatenate([jnp.broadcast_to(f, (rows, f.size)), jnp.broadcast_to(g, (rows, g.size))])
    white = jnp.asarray(np.random.default_rng(9).standard_normal(worlds.shape))
    claim = gdp_epsilon(1.0, 0.05)
    small = ReleasedFunction(worlds + sigma / 4 * mesh_path(white, beta), beta, sigma / 4)
    losses = privacy_losses(small, points, f, g)
    assert least_epsilon(losses, 0.05) > claim
    fresh = np.asarray(worlds + sigma * white)  # independent noise of the same size at each point
    losses = ((fresh - np.asarray(g)) ** 2 - (fresh - np.asarray(f)) ** 2).sum(axis=1) / (2 * sigma**2)
    assert least_epsilon(losses, 0.05) > claim


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), beta=st.floats(0.05, 500.0), size=st.floats(1e-3, 1e3))
def test_whole_numbers_of_neighbours_are_as_near_as_claimed(seed: int, beta: float, size: float) -> None:
    """In units: rounding of floats and truncation included, however large the functions are against their distance."""
    rng = np.random.default_rng(seed)
    f = size * rng.uniform(-1, 1, (2, 33))
    change = rng.standard_normal((2, 33)) * rng.choice([1e-6, 1.0], (2, 33))
    g = np.clip(f + 1e-3 * size * change, -size, size)
    distance = math.sqrt(sum(d @ np.linalg.solve(kernel(np.linspace(0, 1, 33), beta), d) for d in g - f)) * (1 + 1e-7)
    units = []
    for values in (f, g):
        white, apart, largest = whiten_functions(jnp.asarray(values), distance=distance, beta=beta, bound=size)
        lattice = privrl.privacy.noise.lattice.choose_lattice(
            parameter=1.0, sensitivity=apart, norm=largest, filled=66, kind="l2"
        )
        lattice.check_room(1)
        units.append([int(n) for n in np.trunc(np.asarray(white) / lattice.granularity).ravel()])
        assert np.abs(white).max() <= largest
    square = sum((a - b) ** 2 for a, b in zip(*units, strict=True))
    assert math.isqrt(square) <= lattice.sensitivity / lattice.granularity


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), beta=st.floats(1e-3, 1e4))
def test_whitening_rounds_no_more_than_claimed(seed: int, beta: float) -> None:
    """Against 64-bit mantissas: the public factors to 2^-50, and half of the claim in each of two worlds."""
    n, f = 257, np.random.default_rng(seed).uniform(-3, 3, (2, 257))
    white, apart, _ = whiten_functions(jnp.asarray(f), distance=1.0, beta=beta, bound=3.0)
    gap, c, fall = np.longdouble(beta) / (n - 1), float(whitening_factor(n, beta)), float(jnp.expm1(-beta / (n - 1)))
    assert abs(fall / np.expm1(-gap) - 1) < 2.0**-50
    assert abs(c * np.sqrt(-np.expm1(-2 * gap)) - 1) < 2.0**-50
    exact = (np.diff(f.astype(np.longdouble)) - np.longdouble(fall) * f[:, :-1]) * np.longdouble(c)
    off = float(np.sqrt(((np.asarray(white)[:, 1:] - exact) ** 2).sum()))
    claim = math.sqrt(2 * n) * c * 3.0 * 2.0**-49
    assert apart - 1.0 == pytest.approx(claim, rel=1e-3, abs=1e-16)
    assert claim / 200 < off < claim / 2
    short = jnp.asarray(f, jnp.float32)  # values that come in short floats are whitened in long ones
    assert np.array_equal(
        whiten_functions(short, distance=1.0, beta=beta, bound=3.0)[0], whiten(short.astype(jnp.float64), beta)
    )


def test_a_vector_is_released_as_its_distance_says() -> None:
    """Whole units: 10,000 entries that are truncated add sqrt(10,000) of them. Noise within 4.7 standard errors."""
    ask, ledger = curator(System(), mu=0.5)
    value = np.linspace(-1, 1, 10_000)
    released = ask.vector("f", jnp.asarray(value), distance=1.0, bound=1.0)
    (noise,) = ledger.releases()[0]["noise"]
    assert noise["sensitivity"] - 1.0 == pytest.approx(100 * 2.0**-32 + 2.0**-40, rel=1e-6)
    assert noise["scale"] == float(released.noise.scale) == pytest.approx(2.0, rel=1e-7)
    noise = (np.asarray(released.value) - value) / 2.0
    assert abs(noise.mean()) < 4.7 / 100 and abs(noise.var() - 1) < 4.7 * math.sqrt(2) / 100
    assert np.array_equal(np.asarray(released.value) * 2**32, np.rint(np.asarray(released.value) * 2**32))


# ---------------------------------------------------------------------------------------------------- refused, and kept


def test_what_cannot_be_released_is_refused_and_costs_nothing() -> None:
    ask, ledger = curator(System())
    good = {"distance": 0.5, "beta": 2.0, "bound": 1.0}
    f = jnp.zeros(9)
    for name in ("distance", "beta", "bound"):
        for bad in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(ValueError, match=f"`{name}`"):
                ask.function("f", f, **(good | {name: bad}))
    for values in (f.at[3].set(jnp.nan), f.at[3].set(jnp.inf), f.at[3].set(1.1)):
        with pytest.raises(ValueError, match="public `bound` 1, or NaN"):
            ask.function("f", values, **good)
        with pytest.raises(ValueError, match="public `bound` 1, or NaN"):
            ask.vector("f", values, distance=0.5, bound=1.0)
    with pytest.raises(ValueError, match="2\\^depth \\+ 1"):
        ask.function("f", jnp.zeros(10), **good)
    with pytest.raises(ValueError, match="too small relative to `bound`"):
        ask.function("f", f, **(good | {"distance": 1e-12}))
    with pytest.raises(ValueError, match="`distance`"):
        ask.vector("f", f, distance=0.0, bound=1.0)
    assert ledger.releases()[0]["counted"] == 0
    with pytest.raises(LatticeError, match="64 bits"):
        ask.vector("f", f, distance=1e-9, bound=1.0)


def test_only_a_plain_gaussian_declaration_pays_for_a_function() -> None:
    """A sampled share is calibrated for people who may be left out, a Laplace share for another noise."""
    arguments = {"distance": 0.5, "beta": 2.0, "bound": 1.0}
    for declared in (Declared("f", sampling=0.1), Declared("f", group="odd")):
        ledger = Central(epsilon=1.0, delta=1e-5).calibrate([declared])
        with pytest.raises(ValueError, match="not a sum over people"):
            Curator(Nobody(), ledger, System(), "gaussian").function("f", jnp.zeros(9), **arguments)
    ledger = Central(epsilon=1.0, mechanism="laplace").calibrate([Declared("f")])
    with pytest.raises(ValueError, match="Laplace"):
        Curator(Nobody(), ledger, System(), "laplace").function("f", jnp.zeros(9), **arguments)


class CrashError(RuntimeError):
    """Stands for the end of a process."""


class Mortal(ReleaseStore):
    """A store whose process dies when it reaches a point for the first time."""

    deadly: str | None = None

    def _reached(self, point: str) -> None:
        if point == self.deadly:
            raise CrashError


@pytest.mark.parametrize("point", ["drawn", "persist:committed"])
def test_a_crash_burns_or_keeps_a_function(tmp_path, monkeypatch, point: str) -> None:
    """As with sums over people: kept if it was persisted, else charged, and made again from what is left."""
    f = jnp.sin(mesh_points(4))

    def release(store: ReleaseStore) -> tuple[ReleasedFunction, Ledger]:
        ask, ledger = curator(System(), mu=1.0, times=2, store=store)
        return ask.function("f", f, distance=0.5, beta=2.0, bound=1.0), ledger

    with Mortal(tmp_path / "s.db") as store:
        store.deadly = point
        with pytest.raises(CrashError):
            release(store)
    lost = point == "drawn"
    with ReleaseStore(tmp_path / "s.db") as store:
        released, ledger = release(store)
        assert [r["status"] for r in store.describe()["releases"]] == (["burnt", "released"] if lost else ["released"])
    assert ledger.releases()[0]["burnt"] == lost
    # the lost one took mu^2 = 1 of 2; two are still to come, at mu^2 = 1/2 each
    assert float(released.scale) == pytest.approx(0.5 * (math.sqrt(2) if lost else 1.0), rel=1e-6)
    monkeypatch.setattr(Lattice, "add_noise", lambda *_: pytest.fail("noise was drawn again"))
    with ReleaseStore(tmp_path / "s.db") as store:
        again, _ = release(store)
    assert np.array_equal(again.values, released.values) and again.scale == released.scale
