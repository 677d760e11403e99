"""Audits over epochs, and of several reports of one device: never above what is certified, and close to it."""

import jax
import pytest

from privrl.audit.empirical import _patterns, lower_bound
from privrl.audit.surface.recorded_run import record_run
from privrl.audit.worlds import prepare_audit
from privrl.privacy.continual.epochs import Epochs
from privrl.privacy.continual.participation import Participation

TRIALS = 20_000
KEY = jax.random.key(3)


@pytest.mark.parametrize(
    ("m", "distance"), [pytest.param(1, 0, marks=pytest.mark.slow), pytest.param(2, 0, marks=pytest.mark.slow), (2, 1)]
)
def test_people_on_both_sides_of_an_epochs_end(m: int, distance: int) -> None:
    """Worlds that differ in all m episodes of one person, in the same block and across epochs."""
    budget = {"epsilon": 2.0, "delta": 1e-5, "max_episodes_per_unit": m, "min_block_distance": distance}
    found = lower_bound("dp-ucbvi", trials=TRIALS, key=KEY, open_ended=True, rounds=3, **budget)
    assert found.mu is not None and found.mu_exact is not None
    assert found.mu <= found.mu_exact * (1 + 1e-9)
    assert 0.3 * found.epsilon_exact < found.epsilon_lower < found.epsilon_exact
    if m == 1:
        assert found.mu == pytest.approx(found.mu_exact, rel=1e-6)  # the worst person is as far apart as is certified


def test_patterns_cross_the_end_of_an_epoch() -> None:
    _, privatizer, world, learner = prepare_audit("dp-ucbvi", 2.0, 1e-5, None, None)
    run = record_run(world, learner, privatizer, KEY, Participation(2), open_ended=True)
    (channel,) = run.channels.values()
    assert isinstance(channel.continual, Epochs) and channel.continual.order[:2] == (0, 1)
    assert {(0, 0), (0, 1)} <= set(_patterns(run))


@pytest.mark.slow
def test_epochs_at_the_price_of_one_visit_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for one visit where people come twice: mu is twice what is certified, and the attack shows it.

    The quick tests see the same flaw caught without epochs (`noise-for-one-visit` of `test_known_bad.py`).
    """
    monkeypatch.setattr(Epochs, "sensitivity", lambda self, participation: 1.0)
    budget = {"epsilon": 2.0, "delta": 1e-5, "max_episodes_per_unit": 2}
    found = lower_bound("dp-ucbvi", trials=TRIALS, key=KEY, open_ended=True, rounds=3, **budget)
    assert found.epsilon_lower > found.epsilon_exact


def test_reports_of_all_visits_of_a_device() -> None:
    budget = {"epsilon": 2.0, "max_episodes_per_unit": 3}
    found = lower_bound("ldp-ucbvi", trials=TRIALS, key=KEY, **budget)
    assert found.epsilon_exact == pytest.approx(2.0, rel=1e-3)
    assert 0.5 * found.epsilon_exact < found.epsilon_lower < found.epsilon_exact


@pytest.mark.slow
def test_reports_with_gaussian_noise_are_as_far_apart_however_many_share_the_budget() -> None:
    budget = {"epsilon": 2.0, "delta": 1e-5, "trials": 2, "rounds": 1, "key": KEY}
    once, often = (lower_bound("ldp-ucrl-vtr", max_episodes_per_unit=m, **budget) for m in (1, 4))
    assert once.mu == pytest.approx(often.mu, rel=1e-6) and often.mu_exact == pytest.approx(once.mu_exact, rel=1e-6)


def test_tables_have_no_epochs() -> None:
    with pytest.raises(ValueError, match="learns from a table"):
        lower_bound("dp-apvi", epsilon=1.0, delta=1e-5, trials=10, key=KEY, open_ended=True)
