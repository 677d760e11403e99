"""Places, ranges, seals, marks and distributions: written once, the same for every process."""

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.privacy.store.errors import ConflictError, QueueFullError, SumFullError, SumSealedError
from privrl.privacy.store.release_store import ReleaseStore

ONE = np.ones((1, 2), np.int64)


@pytest.fixture
def path(place: Path | str) -> Path | str:
    """A store on either engine."""
    with ReleaseStore(place) as store:
        store.open_study({}, {"rho": 1.0})
    return place


def raw_content(path: Path | str) -> bytes:
    """All bytes of a store that is a file."""
    return b"".join(file.read_bytes() for file in path.parent.iterdir()) if isinstance(path, Path) else b""


def never(new: Sequence[int] = (), first: int = 0) -> list[bytes]:
    raise AssertionError("evaluated again")


def numbered(new: Sequence[int], first: int) -> list[bytes]:
    return [b"%d" % number for number, _ in enumerate(new, first)]


@settings(max_examples=20)
@given(keys=st.lists(st.integers(0, 12), max_size=30), at_most=st.integers(0, 8))
def test_a_key_has_one_place_and_places_are_in_order_of_arrival(keys: list[int], at_most: int) -> None:
    model: dict[int, int] = {}
    with ReleaseStore.in_memory() as store:
        for key in keys:
            full = key not in model and len(model) >= at_most
            with pytest.raises(QueueFullError) if full else contextlib.nullcontext():
                ((number, content),) = store.arrive_all("q", [str(key)], at_most=at_most, contents=numbered)
                assert number == model.setdefault(key, len(model)) and content == b"%d" % number
            assert store.count_places("q") == len(model) and store.describe()["queues"].get("q", 0) == len(model)
        assert store.places("q", range(len(model) + 1)) == {i: b"%d" % i for i in range(len(model))}
        assert store.count_places("other") == 0


def test_a_place_is_the_same_after_a_restart_and_its_key_is_not_written_down(path: Path | str) -> None:
    with ReleaseStore(path) as store:
        assert store.arrive_all("q", ["Anna Example"], at_most=2, contents=lambda *_: [b"plan 3"]) == [(0, b"plan 3")]
    with ReleaseStore(path) as store:
        assert store.arrive_all("q", ["Anna Example"], at_most=0, contents=never) == [(0, b"plan 3")]
        assert store.arrive_all("q", ["Ben"], at_most=2, contents=lambda *_: [b"plan 4"]) == [(1, b"plan 4")]
    assert b"Anna" not in raw_content(path)


def test_places_of_many_keys_are_those_of_one_by_one(path: Path | str) -> None:
    """Some are known, some come twice, and there are more than one query takes."""
    keys = [str(i % 400) for i in range(0, 1_400, 7)] + [str(i) for i in range(600)]
    with ReleaseStore(path) as store:
        alone = [store.arrive_all("alone", [key], at_most=600, contents=numbered)[0] for key in keys[:250]]
        assert store.arrive_all("q", keys[:20], at_most=600, contents=numbered) == alone[:20]
        together = store.arrive_all("q", keys, at_most=600, contents=numbered)
        assert together[:250] == alone and {number for number, _ in together} == set(range(600))
        assert store.places("q", range(700)) == dict(together)


def test_a_place_whose_content_fails_is_not_taken(path: Path | str) -> None:
    with ReleaseStore(path) as store:
        with pytest.raises(AssertionError, match="again"):
            store.arrive_all("q", ["a"], at_most=2, contents=never)
        assert store.count_places("q") == 0
        assert store.arrive_all("q", ["b"], at_most=2, contents=lambda *_: [b""]) == [(0, b"")]


def test_ranges_of_two_handles_never_meet(path: Path | str) -> None:
    with ReleaseStore(path) as one, ReleaseStore(path) as two:
        numbers = [number for store in (one, two, two, one) for number in store.reserve_range("tickets", 7)]
        assert numbers == list(range(28))
        assert one.reserve_range("others", 1) == range(1) and one.describe()["ranges"] == {"others": 1, "tickets": 28}
        with pytest.raises(ValueError, match="at least 1"):
            one.reserve_range("tickets", 0)


def test_a_sealed_sum_takes_nothing_from_any_handle(path: Path | str) -> None:
    with ReleaseStore(path) as one, ReleaseStore(path) as two:
        one.contribute("a", ["x"], ONE, scope="people")
        assert not two.is_sealed("a")
        two.seal("a")
        two.seal("a")
        with pytest.raises(SumSealedError, match="`a` is sealed"):
            one.contribute("a", ["y"], ONE, scope="people")
        with pytest.raises(SumSealedError):
            one.contribute("a", ["x"], ONE, scope="people")  # known keys too: the answer does not tell
        assert one.is_sealed("a") and one.count("a") == 1
        assert one.contribute("b", ["y"], ONE, scope="people").all()  # the refused key was not used up
        one.seal("empty")
        assert one.total("empty") is None and one.describe()["sealed"] == ["a", "empty"]
        with pytest.raises(SumSealedError):
            two.contribute("empty", ["y"], ONE)


def test_a_seal_waits_for_a_contribution_under_way_and_stops_the_next(path: Path | str) -> None:
    """The check is inside the transaction: between it and the sum nobody can seal."""
    order: list[str] = []
    inside = threading.Event()

    class Slow(ReleaseStore):
        def _reached(self, point: str) -> None:
            if point == "contribute:written":
                inside.set()
                sealing.join(0.2)
                order.append("contributed")

    def seal() -> None:
        inside.wait(10)
        with ReleaseStore(path) as own:
            own.seal("a")
            order.append("sealed")

    sealing = threading.Thread(target=seal)
    sealing.start()
    with Slow(path) as store:
        store.contribute("a", ["x"], ONE)
        sealing.join(20)
        with pytest.raises(SumSealedError):
            store.contribute("a", ["y"], ONE)
        assert order == ["contributed", "sealed"] and store.count("a") == 1


def test_a_condition_is_asked_inside_the_transaction(path: Path | str) -> None:
    with ReleaseStore(path) as store:
        asked: list[bool] = []

        def closed() -> bool:
            asked.append(store._engine._depth == 1)
            return len(asked) > 1

        assert store.contribute("a", ["x"], ONE, closed=closed).all()
        with pytest.raises(SumSealedError):
            store.contribute("a", ["y"], ONE, closed=closed)
        assert asked == [True, True] and store.count("a") == 1


def test_a_key_that_comes_again_must_come_with_the_same_mark(path: Path | str) -> None:
    with ReleaseStore(path) as store:
        assert store.contribute("a", ["x"], ONE, scope="s", at_most=1, marks=[b"report"]).all()
        for stream in ("a", "b"):
            assert not store.contribute(stream, ["x"], ONE, scope="s", at_most=1, marks=[b"report"]).any()
            with pytest.raises(ConflictError):
                store.contribute(stream, ["x"], ONE, scope="s", at_most=1, marks=[b"other"])
        with pytest.raises(ConflictError):
            store.contribute("b", ["y", "x"], np.concatenate([ONE, ONE]), scope="s", marks=[b"new", b"other"])
        assert store.contribute("b", ["y"], ONE, scope="s", marks=[b"new"]).all()  # nothing of that batch was kept
        with pytest.raises(SumFullError):
            store.contribute("a", ["z"], ONE, scope="s", at_most=1, marks=[b"new"])
        assert not store.contribute("a", ["x"], 2 * ONE, scope="s").any()  # without marks nobody looks
        assert store.total("a").tolist() == [1, 1]
    assert b"report" not in raw_content(path)


def test_what_was_contributed_is_known_without_contributing(path: Path | str) -> None:
    with ReleaseStore(path) as store:
        store.contribute("a", ["x"], ONE, scope="s", marks=[b"report"])
        assert store.has_contributed("x", scope="s", mark=b"report")
        assert not store.has_contributed("y", scope="s", mark=b"report")
        assert not store.has_contributed("x", scope="other", mark=b"report")
        with pytest.raises(ConflictError):
            store.has_contributed("x", scope="s", mark=b"other")
        assert store.count("a") == 1


def test_a_distribution_is_kept_with_its_reservation_and_asked_for_again(path: Path | str) -> None:
    def fail() -> np.ndarray:
        raise InterruptedError

    with ReleaseStore(path, after_crash="redraw") as store:
        assert store.distribution("x") is None
        with pytest.raises(InterruptedError):
            store.release("x", "rho", 0.5, fail, distribution=b"scale 2")
        assert store.distribution("x") == b"scale 2"
        with pytest.raises(ValueError, match="another noise distribution"):
            store.release("x", "rho", 0.5, lambda: np.array([1]), distribution=b"scale 1")
        assert store.value("x") is None
        assert store.release("x", "rho", 0.5, lambda: np.array([1]), distribution=b"scale 2") == 1
        with pytest.raises(ValueError, match="another noise distribution"):
            store.release("x", "rho", 0.5, fail)


def test_a_distribution_is_written_before_anything_is_drawn(path: Path | str) -> None:
    def draw() -> np.ndarray:
        with ReleaseStore(path) as other:
            assert other.distribution("x") == b"scale 2" and other.value("x") is None
        return np.array([1])

    with ReleaseStore(path) as store:
        store.release("x", "rho", 0.5, draw, distribution=b"scale 2")


def test_how_many_were_counted_is_not_shown() -> None:
    """Two stores that differ in who was counted, and whether anybody was, show the same."""
    shown = []
    for people in (0, 1, 7):
        with ReleaseStore.in_memory() as store:
            store.open_study({}, {"rho": 1.0})
            if people:
                store.contribute("block", [f"{i}" for i in range(people)], np.ones((people, 2), np.int64))
            shown.append(store.describe())
    assert shown[0] == shown[1] == shown[2]


def test_contributions_of_one_commit_are_kept_together_and_refused_alone(path: Path | str) -> None:
    with ReleaseStore(path) as store, ReleaseStore(path) as other:
        store.seal("b")

        def work() -> list[bool]:
            new = []
            for name in "abc":
                with contextlib.suppress(SumSealedError):
                    new += store.contribute(name, ["x", name], np.concatenate([ONE, ONE]), scope="s").tolist()
            assert other.count("a") == 0  # not before the commit
            return new

        assert store.together(work) == [True, True, False, True]
        assert [other.count(name) for name in "abc"] == [2, 0, 1]

        def fail() -> None:
            store.contribute("d", ["y"], ONE)
            raise InterruptedError

        with pytest.raises(InterruptedError):
            store.together(fail)
        assert store.count("d") == 0 and store.contribute("d", ["y"], ONE).all()
