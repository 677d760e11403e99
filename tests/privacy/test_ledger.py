"""Declared, counted, reconciled: nothing beyond the declaration, and trades that keep the total."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privrl.privacy import Declared, Event, Ledger, OverspentError
from privrl.statistics import VisitCounts


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
    book.reconcile({"r0": 2, "r1": 1})
    assert [r["counted"] for r in book.releases()] == [2, 1]
    with pytest.raises(OverspentError, match="4 releases were made"):
        book.reconcile({"r1": 4})


def test_names_are_distinct():
    with pytest.raises(ValueError, match="distinct"):
        Ledger([Declared("a"), Declared("a")], [Event("a", "gaussian", 1.0)] * 2, "replace-one")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"times": 0}, "at least one"),
        ({"weight": 0.0}, "positive"),
        ({"sampling": 0.0}, r"\(0, 1\]"),
        ({"access": "running"}, "statistic"),
    ],
)
def test_bad_declarations(arguments, message):
    with pytest.raises(ValueError, match=message):
        Declared("a", **arguments)
