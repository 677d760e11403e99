"""Nothing that a command writes differs between neighbouring tables, apart from what the noisy releases decide."""

import datetime
from pathlib import Path
from typing import Any

import jax
import pytest
from test_cli import COLUMNS, RIVER, SIZES, call

import privrl
from privrl.contracts.learner import Solution
from privrl.evaluation.shares import releases
from privrl.learners.gradient.fqi import FQI
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.certificate import Certificate
from privrl.studies.offline.enough_people import check_evaluation, check_number
from privrl.studies.results.result import public_facts


class OneDay(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> "OneDay":
        return cls(2026, 1, 31, tzinfo=tz)


@pytest.fixture
def same_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is asked and paid for as always, and the policy does not depend on the answers."""
    fit = FQI.fit

    def fixed(self: FQI, ask: Any) -> Solution:
        fit(self, ask)
        return Solution(TabularPolicy.uniform(self.horizon, *self.space))

    monkeypatch.setattr(FQI, "fit", fixed)
    monkeypatch.setattr("privrl.studies.study.datetime", OneDay)


def table(path: Path, episodes_of: list[int]) -> Path:
    """Unit number i has so many episodes; those that two tables share are the same."""
    world = privrl.envs.make("riverswim", states=3, horizon=4)
    people = world.sample(world.behaviour_policy(), 200, jax.random.key(0))
    units = [i for i, count in enumerate(episodes_of) for _ in range(count)]
    privrl.data.write_parquet(path, jax.tree.map(lambda x: x[: len(units)], people), units=units)
    return path


def everything_written(
    folder: Path, episodes_of: list[int], options: tuple[str, ...], monkeypatch: Any
) -> dict[str, Any]:
    """Standard output and error of every command, and every byte of every file."""
    folder.mkdir()
    table(folder / "people.parquet", episodes_of)
    monkeypatch.chdir(folder)
    fit = ("fit", "people.parquet", "--recipe", "dp-fqi", "--epsilon", "1", *COLUMNS, *SIZES, "--out", "out", *options)
    fit = (*fit, "--overwrite")
    commands = {
        "fit": call(*fit),
        "fit --json": call(*fit, "--json"),
        "fit --store": call(*fit, "--store", "store.db"),
        "certify": call("certify", "out"),
        "certify --json": call("certify", "out", "--json"),
        "report": call("report", "out"),
    }
    assert all(called.code == 0 for called in commands.values()), commands
    files = {path.name: path.read_bytes() for path in [*Path("out").iterdir(), Path("out.html")]}
    assert set(files) == {"certificate.json", "policy.json", "policy.npz", "report.json", "out.html"}
    return {**commands, **files}


@pytest.mark.parametrize(
    ("first", "second", "options"),
    [
        # One person more: delta lies between 1/100 and 1/99, where a warning could tell them apart, and fewer than 100
        # people are refused, if their number is public.
        ([1] * 99, [1] * 100, ("--delta", str(1 / 99.5), "--adjacency", "add-remove")),
        # One episode more of a person who may have three.
        ([2] * 30, [2] * 29 + [3], ("--delta", "1e-6", "--max-episodes-per-unit", "3", "--spend-anyway")),
        pytest.param(
            [2] * 30,
            [2] * 31,
            ("--delta", "1e-6", "--max-episodes-per-unit", "3", "--adjacency", "add-remove"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["a person", "an episode", "a person with several"],
)
def test_neighbours_give_the_same_bytes(
    first: list[int],
    second: list[int],
    options: tuple[str, ...],
    tmp_path: Path,
    same_policy: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = everything_written(tmp_path / "one", first, options, monkeypatch)
    other = everything_written(tmp_path / "other", second, options, monkeypatch)
    for name in one:
        assert one[name] == other[name], name


def test_a_warning_of_delta_asks_for_no_secret() -> None:
    fit = ("fit", "env:riverswim", *RIVER, "--recipe", "dp-apvi", "--epsilon", "1", "--episodes", "50", "--json")
    for delta, users_public, warned in (
        ("1e-4", False, True),
        ("1e-6", False, False),
        ("1e-4", True, False),
        (".1", True, True),
    ):
        called = call(*fit, "--delta", delta, "--adjacency", "replace-one" if users_public else "add-remove")
        assert ("Warning: `--delta`" in called.err) is warned
        assert ("users" in called.json()) is ("episodes" in called.json()) is users_public
        assert "seconds" not in called.json()


@pytest.mark.parametrize(
    ("adjacency", "notion", "episodes", "shown"),
    [
        ("replace-one", "central", 1, {"users", "episodes", "recipe"}),
        ("replace-one", "central", 4, {"users", "recipe"}),
        ("add-remove", "central", 1, {"recipe"}),
        ("add-remove", "central", 4, {"recipe"}),
        ("add-remove", "none", 4, {"users", "episodes", "recipe"}),
    ],
)
def test_which_sizes_are_public(adjacency: Any, notion: Any, episodes: int, shown: set[str]) -> None:
    mechanism = "none" if notion == "none" else "gaussian"
    event = privrl.privacy.accounting.events.Event("a", mechanism, float("inf") if notion == "none" else 1.0)
    book = privrl.privacy.accounting.ledger.Ledger([privrl.contracts.Declared("a")], [event], adjacency)
    facts = {"unit": "user", "bounds": {}, "noise_source": "seed", "version": "", "records_per_unit": episodes}
    made = Certificate.of(book, delta=1e-6, notion=notion, **facts)
    facts = {"users": 5, "episodes": 9, "recipe": "dp-apvi"}
    assert set(public_facts(made, facts)) == shown
    assert set(privrl.Result(TabularPolicy.uniform(1, 2, 2), made, facts).report) == shown


def test_a_refusal_never_depends_on_a_secret_number() -> None:
    """Fewer than 100 people are refused, if neighbours replace a person. If one is added or removed, nothing is."""
    declared = releases(public=True, bounded=True, modelled=False)
    for people in (0, 1, 99, 100, 10**6):
        secret = privrl.Central(epsilon=1.0, delta=1e-6, adjacency="add-remove")
        check_number(people, secret)
        check_evaluation(people, declared, secret, public=True)
        check_number(people, privrl.NonPrivate())  # nothing is spent
    known = privrl.Central(epsilon=1.0, delta=1e-6)
    check_number(100, known)
    check_evaluation(10**6, declared, known, public=True)
    with pytest.raises(ValueError, match="There are 99 people"):
        check_number(99, known)
    with pytest.raises(ValueError, match="certain to be withheld.*95% of studies"):
        check_evaluation(1000, declared, known, public=True)
    estimated = releases(public=False, bounded=True, modelled=False)
    with pytest.raises(ValueError, match="certain to be withheld") as caught:
        check_evaluation(1000, estimated, known, public=False, checked=False)
    assert "check of practice" not in str(caught.value)  # a release does not need it
