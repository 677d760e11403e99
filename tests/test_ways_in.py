"""Recipes and learners of other packages: by place, by entry point, certified if trusted, and checked."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import pytest
from test_cli import call

import privrl
from privrl.contracts import AbstractOfflineLearner, Declared, Solution
from privrl.mdp import TabularPolicy
from privrl.statistics import VisitCounts
from privrl.studies.learner_settings import trusted
from privrl.testing import ContractError, check_learner

MODULE = """
import equinox as eqx
import jax.numpy as jnp
from privrl.contracts import AbstractOfflineLearner, AbstractOnlineLearner, Declared, Plan, Solution
from privrl.mdp import TabularPolicy
from privrl.privacy import geometric_schedule
from privrl.recipes import Algorithm, Recipe
from privrl.statistics import VisitCounts


class MostTaken(AbstractOfflineLearner):
    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    @property
    def space(self):
        return self.num_states, self.num_actions

    def bounds(self):
        return {"horizon": self.horizon, "rewards": "known"}

    def declare(self):
        return (Declared("visits", VisitCounts(*self.space, self.horizon, "pooled")),)

    def fit(self, ask):
        visits = ask("visits").value
        return Solution(TabularPolicy.greedy(jnp.broadcast_to(visits, (self.horizon, *visits.shape))))


class LeastTried(AbstractOnlineLearner):
    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    def bounds(self):
        return {"horizon": self.horizon, "rewards": "known"}

    def schedule(self, num_users):
        return geometric_schedule(num_users, 1.5)

    def declare(self, num_blocks):
        counts = VisitCounts(self.num_states, self.num_actions, self.horizon, "pooled")
        return (Declared("visits", counts, access="running", times=num_blocks),)

    def init(self):
        return None

    def plan(self, memory, released, ask, num_seen):
        visits = released["visits"].value
        return memory, Plan(TabularPolicy.greedy(-jnp.broadcast_to(visits, (self.horizon, *visits.shape))))


def build(kind):
    return lambda problem: kind(problem.num_states, problem.num_actions, problem.horizon)


releases = {"visits": "how often each action was taken in each state"}
cites = ("@misc{doe,\\n  title = {Most Taken},\\n}",)
most = Recipe("dp-most", Algorithm(MostTaken, "offline", build(MostTaken), cites, releases), "central", "most taken")
trying = Algorithm(LeastTried, "online", build(LeastTried), cites, releases)
least = Recipe("dp-least", trying, "central", "least tried")
both = (most, least)
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of somebody else in the current folder."""
    (tmp_path / "their_recipes.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield "their_recipes"
    sys.modules.pop("their_recipes", None)
    trusted.clear()


def test_a_recipe_is_run_by_its_place(outside: str) -> None:
    budget = ("--epsilon", "1", "--delta", "1e-6", "--json")
    found = call("run", f"{outside}:least", "--env", "riverswim", "--episodes", "40", *budget).json()
    assert found["certificate"]["learner"] == "LeastTried"
    assert "Most Taken" in call("cite", f"{outside}:most").out


@pytest.mark.parametrize(
    ("place", "problem"),
    [("nowhere_at_all:most", "cannot be imported"), ("math:pi", "is not a recipe"), ("math:none", "is not a recipe")],
)
def test_a_place_without_a_recipe_is_refused(place: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        privrl.run("riverswim", place, epsilon=1, delta=1e-6, episodes=10, key=0)


def test_entry_points_have_names(outside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = importlib.import_module("privrl.recipes.all_recipes")
    entry = SimpleNamespace(name="theirs", load=lambda: importlib.import_module(outside).both)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == "privrl.recipes" else [])
    registry._outside.cache_clear()
    try:
        found = privrl.run("riverswim", "dp-least", epsilon=1, delta=1e-6, episodes=40, key=0)
        assert found.recipe == "dp-least"
        assert "dp-most" in {one["name"] for one in call("list", "recipes", "--json").json()["recipes"]}
        theirs, own = importlib.import_module(outside).least, registry.get("dp-apvi")
        for load, error, problem in (
            (lambda: 3, TypeError, "gives a `int`"),
            (lambda: importlib.import_module("nowhere_at_all"), ImportError, "`theirs`.*cannot be loaded: No module"),
            (lambda: (theirs, theirs), ValueError, "`dp-least`, and another recipe has that name"),
            (lambda: own, ValueError, "`dp-apvi`, and another recipe has that name"),
        ):
            entry.load = load
            registry._outside.cache_clear()
            with pytest.raises(error, match=problem):
                registry.find("dp-least")
            assert registry.find("dp-apvi") is own, "recipes of privrl need no other package"
    finally:
        registry._outside.cache_clear()


def test_certificates_of_trusted_modules_are_derived(outside: str, tmp_path: Path) -> None:
    result = privrl.fit("env:riverswim", f"{outside}:most", epsilon=1, delta=1e-6, episodes=60)
    folder = result.save(tmp_path / "policy")
    doubted = call("certify", folder)
    assert doubted.code == 1 and "--trust" in doubted.err
    assert call("certify", folder, "--trust", outside, "--allow-non-private").code == 0
    assert call("certify", folder, "--trust", "math").code == 2


def test_a_good_learner_passes(outside: str) -> None:
    theirs = importlib.import_module(outside)
    check_learner(theirs.MostTaken(3, 2, 3))
    check_learner(theirs.LeastTried(3, 2, 3))
    check_learner(theirs.least)


class Liar(VisitCounts):
    """Counts that claim half of what one person can change."""

    def l2(self, adjacency: str) -> float:
        return 0.5 * super().l2(adjacency)


class Broken(AbstractOfflineLearner):
    """Counts with a sensitivity that is too small, or plans by whether there is noise."""

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    how: str = eqx.field(static=True)

    @property
    def space(self) -> tuple[int, int]:
        return self.num_states, self.num_actions

    def bounds(self) -> dict[str, object]:
        return {"horizon": self.horizon}

    def declare(self) -> tuple[Declared, ...]:
        kind = Liar if self.how == "lies" else VisitCounts
        return (Declared("visits", kind(*self.space, self.horizon, "pooled")),)

    def fit(self, ask: object) -> Solution:
        visits = ask("visits").value
        if self.how == "draws":
            DRAWN.append(1)
            visits = visits * (-1) ** len(DRAWN)
        return Solution(TabularPolicy.greedy(jnp.broadcast_to(visits, (self.horizon, *visits.shape))))


DRAWN: list[int] = []


@pytest.mark.parametrize(
    ("how", "problem"), [("lies", "breaks its declared sensitivity"), ("draws", "another policy|no")]
)
def test_a_broken_learner_is_caught(how: str, problem: str) -> None:
    with pytest.raises(ContractError, match=problem):
        check_learner(Broken(3, 2, 3, how))


def test_a_learner_without_sizes_needs_a_world() -> None:
    env = privrl.audit.tiny_world()
    with pytest.raises(ValueError, match="Give `world`"):
        check_learner(privrl.LSVIUCB(env.features, env.horizon))
