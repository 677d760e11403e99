"""A certificate can be checked from its own text, and notices when that text was changed."""

import json
import math

import pytest

from privrl.privacy import Certificate, Declared, Event, Ledger, gdp_epsilon, read_certificate


def certificate(mechanism="gaussian", parameter=0.5, **changes):
    book = Ledger([Declared("sums", times=4)], [Event("sums", mechanism, parameter, 4)], "replace-one")
    for _ in range(3):
        mu = book.spend("sums")
        book.record("sums", 2.0, 2.0 / mu)
    settings = {
        "delta": 1e-5,
        "notion": "central",
        "unit": "patient",
        "bounds": {"norm": 1.0},
        "noise_source": "test",
        "version": "0",
        **changes,
    }
    return Certificate.of(book, **settings)


def test_epsilon_is_that_of_everything_declared():
    made = certificate()
    assert made.mu == pytest.approx(1.0)
    assert made.rho == pytest.approx(0.5)
    assert made.epsilon == pytest.approx(gdp_epsilon(1.0, 1e-5), rel=1e-12)
    assert made.releases[0]["counted"] == 3 and made.releases[0]["declared"] == 4
    assert made.accountant == "exact Gaussian accounting"


def test_pure_and_mixed_accountants():
    pure = certificate("laplace", 0.25, delta=0.0)
    assert pure.epsilon == pytest.approx(1.0) and pure.accountant == "pure composition"
    mixed = certificate("laplace", 0.25)
    assert mixed.epsilon <= 1.0 and "loss distribution" in mixed.accountant


def test_round_trip_through_text():
    made = certificate()
    again = read_certificate(json.dumps(made.to_json(), allow_nan=False))
    assert again.to_json() == made.to_json()
    assert again.recomputed() == made.epsilon
    assert str(again) == str(made)


def test_no_privacy_is_said_in_words_and_in_json():
    made = certificate("none", math.inf, delta=0.0)
    assert made.notion == "none" and made.to_json()["epsilon"] == "inf"
    assert "none: epsilon is infinite" in str(made)
    assert math.isinf(read_certificate(json.dumps(made.to_json())).epsilon)


def test_words_that_a_reader_needs():
    text = str(certificate(claimed={"epsilon": 0.5, "source": "a paper"}, notes=("a note",)))
    for word in ("epsilon", "delta", "patient replaced", "curator", "sums", "3 of 4", "claimed", "a paper", "a note"):
        assert word in text


@pytest.mark.parametrize("change", ["less noise", "more releases"])
def test_an_altered_ledger_is_noticed(change):
    content = certificate().to_json()
    law = content["releases"][0]["laws"][0]
    if change == "less noise":
        law["scale"] *= 0.9
    else:
        law["times"] = 5
    with pytest.raises(ValueError, match="altered"):
        read_certificate(json.dumps(content)).recomputed()


def test_an_altered_epsilon_differs_from_the_recomputed_one():
    content = certificate().to_json()
    content["epsilon"] = 0.1
    changed = read_certificate(json.dumps(content))
    assert changed.recomputed() > changed.epsilon


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"epsilon": 1}'])
def test_what_is_not_a_certificate(text):
    with pytest.raises(ValueError, match="not a certificate"):
        read_certificate(text)
