"""Cryptographic words. Chi-square tests reject at p < 1e-6."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privrl.privacy.noise.random_words import Words, quotient

KEY = bytes(range(32))


def test_words_are_aes_256_in_counter_mode() -> None:
    # The zero key's first two blocks, as in test case 13 of the GCM specification (its H, and its tag).
    blocks = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738b"
    assert Words(bytes(32)).take(4).tobytes().hex() == blocks


@given(st.lists(st.integers(0, 20_000), max_size=5))
def test_requests_do_not_change_the_sequence(counts: list[int]) -> None:
    stream = Words(KEY)
    parts = np.concatenate([stream.take(0), *(stream.take(count) for count in counts)])
    assert parts.dtype == np.uint64
    np.testing.assert_array_equal(parts, Words(KEY).take(sum(counts)))


def test_everybody_has_a_key_of_their_own_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [tuple(Words().take(4)) for _ in range(100)]
    assert len(set(first)) == 100
    asked: list[int] = []
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or KEY)
    assert tuple(Words().take(4)) == tuple(Words(KEY).take(4))
    assert asked == [32]


def test_words_are_uniform_bit_by_bit() -> None:
    words = Words(KEY).take(100_000)
    ones = np.array([((words >> np.uint64(i)) & np.uint64(1)).sum() for i in range(64)], float)
    assert np.abs(ones - 50_000).max() / np.sqrt(25_000) < 5.2  # 64 bits, each at a level of 2e-7


def test_a_forked_child_must_make_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Words()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="new `Words` in the child"):
        stream.take(1)
    with pytest.raises(RuntimeError, match="forked"):
        stream.below(3, 1)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="`key` has 16 bytes"):
        Words(bytes(16))
    with pytest.raises(ValueError, match="`count` is -1"):
        Words().take(-1)
    for bound in (0, -3, 2**62 + 1):
        with pytest.raises(ValueError, match="`bound` is"):
            Words().below(bound, 1)


bounds = st.one_of(st.integers(1, 40), st.integers(1, 2**62), st.integers(0, 62).map(lambda e: 2**e))


@given(bounds, st.data())
def test_each_value_is_the_quotient_of_equally_many_words(bound: int, data: st.DataObject) -> None:
    """The quotient grows with the word; so its first and last word tell how many give a value: always 2 q."""
    q, value = 2**63 // bound, data.draw(st.integers(0, bound - 1))
    edges = [2 * value * q, 2 * (value + 1) * q - 1]
    assert quotient(np.array(edges, np.uint64), bound).tolist() == [value, value]
    if value:
        assert quotient(np.array([edges[0] - 1], np.uint64), bound).tolist() == [value - 1]
    beyond = 2 * bound * q
    if beyond < 2**64:
        assert quotient(np.array([beyond, 2**64 - 1], np.uint64), bound).min() >= bound


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 256, 1000])
def test_below_is_uniform(bound: int) -> None:
    counts = np.bincount(Words(KEY).below(bound, 200_000), minlength=bound)
    assert len(counts) == bound
    assert stats.chisquare(counts).pvalue > 1e-6 if bound > 1 else counts[0] == 200_000


def test_below_is_uniform_where_many_words_are_dropped() -> None:
    bound = 2**62 - 2**60  # a quarter of the candidates lies beyond
    drawn = Words(KEY).below(bound, 100_000)
    assert drawn.min() >= 0 and drawn.max() < bound
    assert stats.kstest(drawn / bound, "uniform").pvalue > 1e-6


@given(bounds, st.integers(0, 50))
def test_below_stays_in_range(bound: int, count: int) -> None:
    drawn = Words().below(bound, count)
    assert drawn.dtype == np.int64 and drawn.shape == (count,)
    assert ((drawn >= 0) & (drawn < bound)).all()
