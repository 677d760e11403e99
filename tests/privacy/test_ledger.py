"""Declared, counted, reconciled: nothing beyond the declaration, and trades that keep the total."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privrl.contracts.release import Declared
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.ledger import Ledger, OverspentError
from privrl.statistics.counts import VisitCounts


def ledger(times=(2, 3), mus=(0.5, 0.25), groups=(None, None), mechanism="gaussian", access="rounds"):
    declared = [Declared(f"r{i}", times=t, group=g) for i, (t, g) in enumerate(zip(times, groups, strict=True))]
    events = [Event(f"r{i}", mechanism, m, t, g) for i, (t, m, g) in enumerate(zip(times, mus, groups, strict=True))]
    return Ledger(declared, events, "replace-one")


def total(book):
    return sum(e.parameter**2 * e.times for e in book.events())


def test_spends_what_was_declared_and_not_more():
    book = ledger()
    assert [book.spend("r0"), book.spend("r0")] == [0.5, 0.5]
    with pytest.raises(OverspentError, match="r0.*declared 2 times"):
        book.spend("r0")
    with pytest.raises(OverspentError, match="not declared"):
        book.spend("other")
    assert [r["counted"] for r in book.releases()] == [2, 0]


def test_unspent_releases_are_certified_all_the_same():
    book = ledger()
    before = total(book)
    book.spend("r0")
    assert total(book) == before == pytest.approx(2 * 0.25 + 3 * 0.0625)


@given(st.lists(st.sampled_from(["spend0", "spend1", "skip0", "skip1"]), max_size=12))
def test_any_order_of_spending_and_trading_keeps_the_total(actions):
    book = ledger(times=(4, 5), mus=(0.7, 0.2))
    before = total(book)
    spent = 0.0
    for action in actions:
        try:
            if action.startswith("spend"):
                spent += book.spend(f"r{action[-1]}") ** 2
            else:
                other = "r1" if action == "skip0" else "r0"
                book.skip(f"r{action[-1]}", (other,))
        except OverspentError:
            continue
    assert math.isclose(total(book), before, rel_tol=1e-12)
    assert spent <= before * (1 + 1e-12)


def test_skipped_releases_cannot_be_made_any_more():
    book = ledger(times=(1, 1))
    book.skip("r0", ("r1",))
    with pytest.raises(OverspentError):
        book.spend("r0")
    assert book.spend("r1") == pytest.approx(math.hypot(0.5, 0.25))


@pytest.mark.parametrize(
    "book",
    [
        ledger(mechanism="laplace"),
        ledger(groups=("left", "right")),
        Ledger(
            [Declared("r0", sampling=0.5), Declared("r1")],
            [Event("r0", "gaussian", 1.0, sampling=0.5), Event("r1", "gaussian", 1.0)],
            "replace-one",
        ),
        Ledger(
            [Declared("r0"), Declared("r1", VisitCounts(2, 2, 2), access="running", times=3)],
            [Event("r0", "gaussian", 1.0), Event("r1", "gaussian", 1.0)],
            "replace-one",
        ),
    ],
    ids=["laplace", "other group", "sampled", "streamed"],
)
def test_only_gaussian_shares_of_one_group_can_trade(book):
    with pytest.raises(ValueError, match="cannot move"):
        book.skip("r0", ("r1",))


def test_reconciles_what_a_loop_made():
    book = ledger()
    for counts in ((1, 1), (2, 1)):  # what was written before is replaced
        for name, count in zip(("r0", "r1"), counts, strict=True):
            book.reconcile(name, count, (2.0, 5.0))
    assert [r["counted"] for r in book.releases()] == [2, 1]
    assert book.releases()[0]["noise"] == [{"sensitivity": 2.0, "scale": 5.0, "times": 2}]
    with pytest.raises(OverspentError, match="4 releases were made"):
        book.reconcile("r1", 4, None)


def test_names_are_distinct():
    with pytest.raises(ValueError, match="distinct"):
        Ledger([Declared("a"), Declared("a")], [Event("a", "gaussian", 1.0)] * 2, "replace-one")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"times": 0}, "at least 1"),
        ({"weight": 0.0}, "positive"),
        ({"sampling": 0.0}, r"\(0, 1\]"),
        ({"access": "running"}, "statistic"),
    ],
)
def test_bad_declarations(arguments, message):
    with pytest.raises(ValueError, match=message):
        Declared("a", **arguments)


@given(st.lists(st.sampled_from(["spend0", "spend1", "burn0", "burn1", "skip0", "skip1"]), max_size=14))
def test_burnt_releases_stay_counted_and_the_total_never_moves(steps):
    book = ledger()
    before, limits = total(book), book.limits()
    spent = 0.0
    for step in steps:
        name, other = f"r{step[-1]}", f"r{1 - int(step[-1])}"
        try:
            if step.startswith("spend"):
                spent += book.charge(name, book.spend(name))
            elif step.startswith("skip"):
                book.skip(name, (other,))
            elif book.releases()[int(step[-1])]["counted"]:
                book.burn(name)
        except OverspentError:
            continue
        assert total(book) == pytest.approx(before)
        assert book.limits() == pytest.approx(limits)
        assert spent <= sum(limits.values()) * (1 + 1e-12)
    for release in book.releases():
        assert release["counted"] <= release["declared"] + release["burnt"]


def test_a_burnt_release_is_paid_for_by_those_ahead():
    book = ledger(times=(1, 2), mus=(0.5, 0.3))
    lost = book.spend("r0")
    book.burn("r0")
    again = book.spend("r0")
    ahead = [book.spend("r1"), book.spend("r1")]
    assert lost == 0.5
    assert again < 0.5
    assert ahead[0] == ahead[1] < 0.3
    assert lost**2 + again**2 + sum(mu**2 for mu in ahead) == pytest.approx(0.25 + 2 * 0.09)
    with pytest.raises(OverspentError, match="no budget is left"):
        book.burn("r1")  # nothing ahead


def test_what_cannot_be_traded_cannot_be_made_again():
    book = ledger(mechanism="laplace")
    book.spend("r0")
    with pytest.raises(OverspentError, match="no budget is left"):
        book.burn("r0")
    assert book.limits() == {"release r0": 2.0, "release r1": 3.0}
    apart = ledger(groups=("a", "b"))
    apart.spend("r0")
    apart.spend("r0")
    with pytest.raises(OverspentError, match="no budget is left"):
        apart.burn("r0")  # the other group's budget protects other people
    assert set(apart.limits()) == {"Gaussian noise, mu^2 of group a", "Gaussian noise, mu^2 of group b"}
