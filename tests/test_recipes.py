"""A recipe's entry carries what is said about it: papers, words for reports, and its name in figures."""

import inspect
import re

import pytest

from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQScalar
from privrl.envs.patients.anticoagulation import Anticoagulation
from privrl.envs.tabular.interval_walk import IntervalWalk
from privrl.envs.tabular.riverswim import RiverSwim
from privrl.envs.worlds_by_name import make
from privrl.figures.tabular import _HELD_OUT
from privrl.recipes.all_recipes import algorithms, recipes
from privrl.recipes.papers import key_of, papers


@pytest.mark.parametrize("kind", algorithms, ids=lambda kind: kind.__name__)
def test_an_algorithm_cites_every_paper_that_its_file_names(kind: type) -> None:
    """Tags such as `[qiao-wang A1:4]`, and the class by which certificates and reports find the entry."""
    tags = set(re.findall(r"\[([a-z][a-z-]+) (?:[A-Z]|eq)", inspect.getsource(inspect.getmodule(kind))))
    assert tags <= {key_of(entry) for entry in algorithms[kind].cites}


@pytest.mark.parametrize("name", recipes)
def test_a_recipe_builds_its_algorithm_and_has_words_for_every_release(name: str) -> None:
    recipe = recipes[name]
    worlds = {"control": LQScalar, "functional": IntervalWalk, "measured": Anticoagulation}
    env = worlds.get(recipe.family, lambda: RiverSwim(states=3))()
    learner = recipe.build(env, 1_000)
    online = recipe.family in ("online", "control")
    declared = [release.name for release in (learner.declare(2) if online else learner.declare())]
    assert type(learner) is recipe.algorithm.learner
    assert {re.sub(r"-\d+$", "", release) for release in declared} == set(recipe.algorithm.said_of(declared))


def test_names_in_figures_tell_recipes_apart() -> None:
    labels = [recipe.label for recipe in recipes.values()]
    assert len(set(labels)) == len(labels)
    assert [recipes[name].label for name in ("apvi", "dp-apvi", "dp-apvi@paper", "lsvi-ucb++")] == [
        "APVI, no privacy",
        "ours: dp-apvi",
        "DP-APVI as published",
        "LSVI-UCB++, no privacy",
    ]


def test_papers_are_bibtex_with_a_key_each() -> None:
    assert len(papers) > 20
    for key, entry in papers.items():
        assert re.match(rf"@\w+{{{key},\n(  \w+ += {{.+}},\n)+}}$", entry)


@pytest.mark.parametrize(
    ("env", "learner"),
    [
        (make("riverswim"), "OBI"),
        (make("riverswim-inhomogeneous"), "LSVIUCB"),
        (make("random-world", kernel="changing", states=30, actions=20), "UCBVI"),  # 600 one-hot features
        (make("synthetic-linear"), "LSVIUCB"),
        (make("gym:FrozenLake-v1"), "LSVIUCB"),  # pays on arrival
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_auto_online_chooses_by_public_facts(env: Env, learner: str) -> None:
    assert type(recipes["auto-online"].build(env)).__name__ == learner


def test_the_figure_states_what_auto_online_takes() -> None:
    for (name, seed, world), taken, other in _HELD_OUT.values():
        env = make(name, seed=seed, **dict(world))
        chosen = type(recipes["auto-online"].build(env))
        assert chosen is recipes[taken].algorithm.learner is not recipes[other].algorithm.learner
