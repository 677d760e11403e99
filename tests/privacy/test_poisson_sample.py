"""PoissonSample of Poisson samples: word e of AES-256-CTR, wherever the reading begins."""

import itertools

import numpy as np
import pytest

from privrl.privacy.noise.poisson_sample import PoissonSample
from privrl.privacy.noise.random_words import Words

KEY = bytes(range(32))


def test_a_coin_is_its_word_of_the_cipher() -> None:
    """The same words as those of `Words`, whose counter starts at 0 under the same key."""
    words = Words(KEY).take(200_000)
    drawn = PoissonSample(KEY, 0.3).draws(0, 200_000)
    np.testing.assert_array_equal(drawn, words >> np.uint64(12) < np.floor(0.3 * 2.0**52))
    assert abs(drawn.mean() - 0.3) < 4.5 * np.sqrt(0.3 * 0.7 / 200_000)


@pytest.mark.parametrize("first", [0, 1, 2, 7, 65_535, 65_536, 131_071, 2**40 + 1])
def test_coins_can_be_looked_up_anywhere(first: int) -> None:
    sample = PoissonSample(KEY, 0.5)
    whole = sample.draws(first - first % 2, 140_000)
    np.testing.assert_array_equal(sample.draws(first, 130_001), whole[first % 2 :][:130_001])
    assert len(sample.draws(first, 0)) == 0


def test_shards_draw_the_sample_of_the_whole() -> None:
    sample = PoissonSample(KEY, 0.01)
    edges = [0, 1, 1, 4_097, 9_001, 50_000]
    parts = [sample.draws(a, b - a) for a, b in itertools.pairwise(edges)]
    np.testing.assert_array_equal(np.concatenate(parts), sample.draws(0, 50_000))


def test_nobody_is_drawn_more_often_than_said() -> None:
    """The threshold is rounded down, and a share of 1 draws everybody."""
    assert PoissonSample(KEY, 1.0).draws(0, 10_000).all()
    assert not PoissonSample(KEY, 2.0**-60).draws(0, 10_000).any()


def test_the_key_is_not_shown_and_what_is_wrong_is_refused() -> None:
    assert "key" not in repr(PoissonSample(KEY, 0.5)) and "\\x01" not in repr(PoissonSample(KEY, 0.5))
    with pytest.raises(ValueError, match="31 bytes; AES-256 needs 32"):
        PoissonSample(bytes(31), 0.5)
    with pytest.raises(ValueError, match="must lie in"):
        PoissonSample(KEY, 1.5)
    with pytest.raises(ValueError, match="0 or more"):
        PoissonSample(KEY, 0.5).draws(-1, 3)
