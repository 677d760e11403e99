"""People who come back: sensitivities of continual release against brute force over all patterns, and over pairs."""

import itertools

import numpy as np
import pytest

from privrl.privacy.continual.mechanisms import AbstractContinual, BinaryTree, Fresh, Honaker
from privrl.privacy.continual.participation import Participation, largest, pattern_norm
from privrl.privacy.continual.toeplitz import Banded, SquareRoot, best_band, error_floor

SCHEMES = [
    *(kind(steps) for kind in (Fresh, BinaryTree, Honaker, SquareRoot) for steps in (1, 3, 5, 8)),
    Banded(8, 1),
    Banded(8, 3),
    Banded(7, 2),
]
EXACT = (SquareRoot, Banded, Fresh)


def patterns(steps: int, participation: Participation) -> list[tuple[int, ...]]:
    """Every way to take part, of `times` or fewer."""
    return [
        pattern
        for m in range(1, participation.times + 1)
        for pattern in itertools.combinations_with_replacement(range(steps), m)
        if all(b - a >= participation.distance for a, b in itertools.pairwise(pattern))
    ]


def brute(scheme: AbstractContinual, participation: Participation) -> float:
    encoder = scheme.encoder()
    return max(pattern_norm(encoder.T @ encoder, pattern) for pattern in patterns(scheme.steps, participation))


@pytest.mark.parametrize("distance", [0, 1, 2, 3])
@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_sensitivity_bounds_every_pattern(times: int, distance: int) -> None:
    participation = Participation(times, distance)
    for scheme in SCHEMES:
        found, true = scheme.sensitivity(participation), brute(scheme, participation)
        assert found >= true * (1 - 1e-12), scheme
        if isinstance(scheme, EXACT) or distance == 0 or times == 1:
            assert found == pytest.approx(true, rel=1e-12), scheme
        assert found <= 1.3 * true, scheme  # how far a bound is from the truth on the tree


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_one_time_is_the_factor(scheme: AbstractContinual) -> None:
    assert scheme.sensitivity(Participation()) == pytest.approx(scheme.factor, rel=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_decoder_and_encoder_make_prefix_sums(scheme: AbstractContinual) -> None:
    """Where white noise is that of the encoder's rows; the tree draws some noise that no release holds alone."""
    if not isinstance(scheme, BinaryTree | Honaker):
        np.testing.assert_allclose(
            scheme.matrix() @ scheme.encoder(), np.tril(np.ones((scheme.steps, scheme.steps))), atol=1e-12
        )


@pytest.mark.parametrize("kind", [Fresh, BinaryTree, SquareRoot])
def test_two_persons_in_each_others_place(kind: type) -> None:
    """All pairs of patterns of up to 3 of 6 blocks, terms of norm 1 in the plane: 2 and sqrt 2 times, and attained."""
    scheme, participation = kind(6), Participation(3, 1)
    encoder, bound = scheme.encoder(), scheme.sensitivity(participation)
    rng = np.random.default_rng(0)
    images: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for pattern in patterns(6, participation):
        for angle in rng.uniform(0.0, 2 * np.pi, (6, len(pattern))):
            terms = np.stack([np.cos(angle), np.sin(angle)], axis=1)
            images[False].append((encoder[:, pattern] @ terms).ravel())
            images[True].append((encoder[:, pattern] @ np.abs(terms)).ravel())
        same = np.tile([1.0, 0.0], (len(pattern), 1))
        images[False] += [(encoder[:, pattern] @ term).ravel() for term in (same, -same)]
        images[True] += [(encoder[:, pattern] @ term).ravel() for term in (same, same[:, ::-1])]
    for positive, factor in ((False, 2.0), (True, np.sqrt(2.0))):
        x = np.stack(images[positive])
        apart = np.linalg.norm(x[:, None] - x, axis=2).max()
        assert apart <= factor * bound * (1 + 1e-12)
        if kind is not BinaryTree:
            assert apart == pytest.approx(factor * bound, rel=1e-9)


def test_a_gram_matrix_with_negative_entries_counts_by_size() -> None:
    gram = np.array([[2.0, -1.0], [-1.0, 2.0]])
    assert largest(gram, Participation(2, 1)) == pytest.approx(np.sqrt(6.0))


@pytest.mark.parametrize("steps", [16, 64, 256])
def test_four_times_a_quarter_apart(steps: int) -> None:
    """At most .75 of the naive factor 4 with the square root, less with a band, and never below the floor."""
    often = Participation(4, steps // 4)
    root, band = SquareRoot(steps), best_band(steps, often)
    naive = 4 * root.factor

    def error(scheme: SquareRoot | Banded, sensitivity: float) -> float:
        return sensitivity * float(np.sqrt(np.cumsum(scheme.decoding**2).mean()))

    default, optimised = error(root, root.sensitivity(often)), error(band, band.sensitivity(often))
    assert root.sensitivity(often) <= 0.75 * naive
    assert error_floor(steps, often) < optimised < 0.9 * default


@pytest.mark.parametrize(("times", "distance"), [(0, 0), (1, -1)])
def test_refusals(times: int, distance: int) -> None:
    with pytest.raises(ValueError, match="`times`|`distance`"):
        Participation(times, distance)
    with pytest.raises(ValueError, match="`band`"):
        Banded(4, 5)
