"""Sources of noise. Kolmogorov-Smirnov tests reject at p < 1e-6."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from draws import record_draws
from scipy import stats

import privrl  # noqa: F401  (turns on float64)
from privrl.privacy.noise import sources as _sources
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.sources import ORIGIN_WORDS, AbstractSource, NoiseReuseError, Seeded, System


def sources() -> list[AbstractSource]:
    return [Seeded(jax.random.key(0)), System()]


def test_seeded_draws_follow_their_distributions() -> None:
    source = Seeded(jax.random.key(0))
    for name, distribution in (("normal", "norm"), ("laplace", "laplace"), ("uniform", "uniform")):
        draw = _sources.uniform if name == "uniform" else functools.partial(_sources.white_noise, name)
        drawn = np.asarray(draw(source.randomness((name,)), (70, 1000)))
        assert drawn.dtype == np.float64
        assert drawn.shape == (70, 1000)
        assert stats.kstest(drawn.ravel(), distribution).pvalue > 1e-6


def test_coins_of_the_system_are_uniform_and_never_0_or_1() -> None:
    drawn = System().uniform(("coins",), (70, 1000))
    assert drawn.shape == (70, 1000)
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-6

    class Extreme(Words):
        def __init__(self, word: int) -> None:
            self.word = word

        def take(self, count: int) -> np.ndarray:
            return np.full(count, self.word, np.uint64)

    assert (
        0 < _sources.exact_uniform(Extreme(0), (3,)).min() < _sources.exact_uniform(Extreme(2**64 - 1), (3,)).max() < 1
    )


@pytest.mark.parametrize("source", sources())
def test_a_label_can_be_drawn_once(source: AbstractSource) -> None:
    source.uniform(("gram", 3), (2,))
    source.uniform(("gram", 4), (2,))
    for draw in (source.uniform, lambda label, shape: source.randomness(label)):
        with pytest.raises(NoiseReuseError, match="gram"):
            draw(("gram", 3), (2,))
    with pytest.raises(NoiseReuseError):
        source.uniform(("gram", np.int64(4)), (2,))


def test_seeded_draws_do_not_depend_on_order() -> None:
    labels = [("gram", i) for i in range(4)] + [("vector", 0), ("gram", "0"), ("gram", 0, 0)]
    forward, backward = Seeded(jax.random.key(7)), Seeded(jax.random.key(7))
    one = {label: np.asarray(forward.uniform(label, (3,))) for label in labels}
    two = {label: np.asarray(backward.uniform(label, (3,))) for label in reversed(labels)}
    for label in labels:
        assert np.array_equal(one[label], two[label])
    assert len({draw.tobytes() for draw in one.values()}) == len(labels)
    assert not np.array_equal(one["gram", 0], Seeded(jax.random.key(8)).uniform(("gram", 0), (3,)))


def test_labels_have_distinct_digests() -> None:
    labels = [("a", i, j) for i in range(40) for j in range(40)] + [
        ("a1", 1),
        ("a", 11),
        ("a", "1", 1),
        ("a", 1),
        ("a",),
    ]
    assert len({_sources._digest(label) for label in labels}) == len(labels)
    assert _sources._digest(("gram", 3)).hex() == "61951c7d4f11b6acf15f7a8cca1977fe"  # for ever, so that seeds replay


def test_bad_labels_are_refused() -> None:
    with pytest.raises(TypeError):
        System().randomness(("gram", 1.0))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        System().randomness((True,))
    with pytest.raises(ValueError, match="empty"):
        System().randomness(())


def test_descriptions_tell_simulation_from_production() -> None:
    seeded, system = sources()
    assert (seeded.origin, system.origin) == ("seed", "system")
    assert "protects no one" in ORIGIN_WORDS[seeded.origin]
    assert "whole numbers on a lattice" in ORIGIN_WORDS[system.origin]


def test_system_streams_are_never_repeated() -> None:
    one, two = System().randomness(("x",)), System().randomness(("x",))
    assert not np.array_equal(one.take(4), two.take(4))


def noisy_scan(key: jax.Array) -> jax.Array:
    def step(carry: jax.Array, step_key: jax.Array) -> tuple[jax.Array, jax.Array]:
        one, two = jax.random.split(step_key)
        return carry, _sources.standard_normal(one, (2,)).sum() + _sources.standard_laplace(two, ())

    return jax.lax.scan(step, jnp.zeros(()), jax.random.split(key, 5))[1]


def test_recorder_sees_every_draw_under_transformations() -> None:
    compiled = jax.jit(jax.vmap(noisy_scan))
    keys = jax.random.split(jax.random.key(1), 3)
    before = compiled(keys)  # compiled without the hook: it must be traced again
    with record_draws() as drawn:
        during = compiled(keys)
        Seeded(jax.random.key(2)).uniform(("answer", 0), (2,))
    assert len(drawn) == 3 * 5 * 2 + 1
    assert len(set(drawn)) == len(drawn)
    expected = jax.random.key_data(jax.vmap(jax.random.split)(jax.vmap(lambda k: jax.random.split(k, 5))(keys).ravel()))
    assert set(drawn[:-1]) == {tuple(map(int, row)) for row in np.asarray(expected).reshape(-1, expected.shape[-1])}
    assert np.array_equal(before, during)
    compiled(keys)
    assert len(drawn) == 31  # recording ended


def test_recorder_sees_a_reused_key() -> None:
    with record_draws() as drawn:
        key = jax.random.key(3)
        _sources.uniform(key, (2,))
        _sources.standard_normal(key, (2,))
    assert len(drawn) == 2
    assert len(set(drawn)) == 1


def test_recordings_do_not_nest() -> None:
    with record_draws(), pytest.raises(RuntimeError, match="nested"), record_draws():
        pass
