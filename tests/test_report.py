"""The report: one file, nothing fetched, and words that say what the numbers say."""

import dataclasses
import math
import re
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from privrl import Certificate, Result
from privrl.experiments import Study, guess_rate, in_words, mean_and_error, regret_figure, shares, study_page
from privrl.experiments._plots import spread, to_svg
from privrl.mdp import TabularPolicy
from privrl.privacy import Event, gdp_epsilon


def certificate(*events: Event, delta: float = 1e-6, **changes: object) -> Certificate:
    mus = [event.parameter for event in events if event.mechanism == "gaussian"]
    mu = math.hypot(*mus) if len(mus) == len(events) else None
    made = Certificate(
        epsilon=gdp_epsilon(mu, delta) if mu is not None else sum(event.parameter for event in events),
        delta=delta,
        epsilon_zcdp=None,
        rho=None,
        mu=mu,
        notion="central",
        adjacency="replace-one",
        unit="stay",
        bounds={"episodes per unit": 1},
        events=events,
        releases=(),
        accountant="exact Gaussian accounting",
        noise_source="cryptographic randomness from the operating system, whole numbers on a lattice",
        version="0",
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def gaussian(name: str, mu: float, times: int = 1, group: str | None = None) -> Event:
    return Event(name, "gaussian", mu, times, group)


@pytest.fixture
def study() -> Study:
    made = certificate(gaussian("visits", 0.4), gaussian("transitions", 0.8), unit="<stay>")
    return Study(
        recipe="dp-apvi",
        episodes=1234,
        seed=5,
        epsilon=3.0,
        baselines={"optimal": 0.8, "uniform": 0.6, "behaviour": 0.7, "mode": 0.71},
        non_private=(0.77, 0.79),
        private={1.0: (0.70, 0.72), 3.0: (0.74, 0.76), 9.0: (0.76, 0.77)},
        result=Result(TabularPolicy(jnp.ones((1, 2, 1))), made, {}),
        value=0.7512,
        seconds=1.0,
    )


class Reader(HTMLParser):
    """Collects the tags, the text, and every attribute that could make a browser fetch something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.fetched += [
            v or "" for k, v in attributes if k in ("src", "href", "xlink:href", "srcset", "data", "action")
        ]
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_page_is_one_file_that_fetches_nothing(study: Study) -> None:
    text = study_page(study)
    page = Reader(text)
    assert page.open == []
    assert page.seen.count("svg") == 2
    assert not {"script", "link", "iframe", "img"} & set(page.seen)
    assert [address for address in page.fetched if not address.startswith("#")] == []
    assert not re.search(r"url\((?!#)|@import", text)
    assert 'name="viewport"' in text


def test_page_says_what_was_found(study: Study) -> None:
    page = Reader(study_page(study))
    words = " ".join(" ".join(page.words).split())
    assert "75.1" in words  # the value of the policy that was kept
    assert "0.7500 ± 0.0100" in words  # its repetitions: mean and standard error by hand
    assert "must not guide the treatment" in words
    assert "<stay>" in words and "stay" not in page.seen  # escaped, not taken for a tag
    assert str(study.result.certificate).splitlines()[1].split()[-1] in words


def test_rows_measure_the_gap_from_doctors_to_optimal(study: Study) -> None:
    gaps = {name: gap for name, _, gap in study.rows()}
    assert gaps["best possible"] == 1 and gaps["doctors"] == 0
    assert gaps["private, epsilon = 3"] == pytest.approx(0.5)
    assert gaps["random treatment"] == pytest.approx(-1)
    assert study.chosen_row in gaps


def test_mean_and_error_by_hand() -> None:
    assert mean_and_error([3.0]) == (3.0, None)
    mean, error = mean_and_error([1.0, 2.0, 6.0])
    assert (mean, error) == (3.0, pytest.approx(math.sqrt(7.0 / 3)))


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_guess_rate_of_gaussian_noise_is_that_of_the_best_test(mu: float) -> None:
    """Against the total variation distance that dp-accounting finds: rate = (1 + TV)/2, and TV = delta at epsilon 0."""
    distance = pld.from_gaussian_mechanism(1 / mu).get_delta_for_epsilon(0.0)
    assert guess_rate(certificate(gaussian("a", mu))) == pytest.approx((1 + distance) / 2, rel=1e-3)


def test_guess_rate_without_a_mu_follows_epsilon_and_delta() -> None:
    pure = certificate(Event("a", "laplace", math.log(3)), delta=0.0)
    assert guess_rate(pure) == pytest.approx(0.75)
    assert guess_rate(dataclasses.replace(pure, delta=0.2)) == pytest.approx(0.8)
    huge = dataclasses.replace(pure, epsilon=1e6)
    assert guess_rate(huge) == pytest.approx(1.0)


def test_shares_of_gaussian_releases_are_of_mu_squared() -> None:
    parts = shares(certificate(gaussian("a", 1.0, times=3), gaussian("b", 1.0)))
    assert parts == pytest.approx({"a": 0.75, "b": 0.25})
    assert shares(certificate(Event("a", "laplace", 1.0), Event("b", "laplace", 3.0))) == pytest.approx(
        {"a": 0.25, "b": 0.75}
    )


def test_shares_of_disjoint_groups_are_of_the_dearest() -> None:
    parts = shares(certificate(gaussian("all", 1.0), gaussian("x", 1.0, group="1"), gaussian("y", 2.0, group="2")))
    assert parts == pytest.approx({"all": 0.2, "x": 0.2, "y": 0.8})


def test_no_privacy_is_said_and_has_no_shares() -> None:
    plain = certificate(Event("a", "none", math.inf), notion="none", epsilon=math.inf)
    assert shares(plain) == {}
    (question, answer), *rest = in_words(plain)
    assert "No." in answer and not rest and question


def test_words_change_with_the_certificate() -> None:
    def text(made: Certificate) -> str:
        return " ".join(answer for _, answer in in_words(made))

    made = certificate(gaussian("a", 0.5))
    rate = math.ceil(100 * guess_rate(made))
    assert f"at most {rate}," in text(made) and "one in 1,000,000" in text(made)
    assert "number of stays is public" in text(made)
    assert "number of stays" not in text(dataclasses.replace(made, adjacency="add-remove"))
    assert "more than 4 episodes" in text(dataclasses.replace(made, bounds={"episodes per unit": 4}))
    assert "simulation" in text(dataclasses.replace(made, noise_source="simulation: seeded, protects nobody"))
    assert "in whole numbers" in text(made)
    assert "Very little" in text(made) and "Possibly much" in text(certificate(gaussian("a", 4.0)))
    assert "Nobody. Noise was added" in text(dataclasses.replace(made, notion="local"))


@given(levels=st.lists(st.floats(0, 1), min_size=1, max_size=8), gap=st.floats(0.01, 0.3))
def test_labels_keep_their_order_and_distance(levels: list[float], gap: float) -> None:
    places = spread(levels, gap)
    order = np.argsort(levels, kind="stable")
    assert np.all(np.diff(np.asarray(places)[order]) >= gap * (1 - 1e-9))
    assert np.mean(places) == pytest.approx(np.mean(levels), abs=1e-9)


def test_labels_that_do_not_collide_stay_where_they_are() -> None:
    assert spread([0.9, 0.1, 0.5], 0.2) == [0.9, 0.1, 0.5]


def test_a_figure_is_the_same_text_every_time() -> None:
    curve = {"episodes": [1, 2], "mean": [1.0, 1.5], "se": [None, 0.1]}
    first, second = (to_svg(regret_figure(curve, {"uniform": 4.0}, "title"), "regret") for _ in range(2))
    assert first == second
    assert first.startswith("<svg role") and "aria-label" in first
