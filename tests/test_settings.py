"""Settings as plain JSON: deterministic, and different as soon as one setting differs."""

import dataclasses
import functools
import json
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.contracts.learner import AbstractLearner, AbstractOnlineLearner
from privrl.contracts.statistic import AbstractStatistic
from privrl.envs.worlds_by_name import make
from privrl.learners.gradient.fqi import FQI
from privrl.learners.linear.pevi import PEVI
from privrl.learners.linear.ucrl_vtr import UCRLVTR
from privrl.learners.tabular.apvi import APVI
from privrl.learners.tabular.tdfp import TDFP
from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.recipes.all_recipes import recipes
from privrl.studies.learner_settings import known_settings, settings_of
from privrl.studies.rebuilt import NotOursError, learner_of

WORLDS = {"offline": "riverswim", "online": "riverswim", "control": "lq-2d", "functional": "interval-walk"}
WORLDS["measured"] = "anticoagulation"


@functools.cache
def build(world: str) -> Any:
    return make(world)


def text(learner: AbstractLearner) -> str:
    return json.dumps(settings_of(learner), sort_keys=True, allow_nan=False)


@pytest.mark.parametrize("name", recipes)
def test_every_recipe_has_settings_and_each_of_them_counts(name: str) -> None:
    recipe = recipes[name]
    first, again = (recipe.build(build(WORLDS[recipe.family])) for _ in range(2))
    assert text(first) == text(again)
    for field in dataclasses.fields(first):
        other = object.__new__(type(first))
        for f in dataclasses.fields(first):
            object.__setattr__(other, f.name, getattr(first, f.name))
        object.__setattr__(other, field.name, "changed")
        assert text(other) != text(first), field.name


def test_settings_that_look_alike_differ() -> None:
    features = OneHotFeatures(3, 2)
    alike = [
        PEVI(features, 4),
        PEVI(TableFeatures(features.table), 4),
        PEVI(TableFeatures(jnp.asarray(features.table, jnp.float32)), 4),
        PEVI(OneHotFeatures(2, 3), 4),
        FQI(3, 2, 4),
        FQI(3, 2, 4, learning_rate=1),
        FQI(3, 2, 4, learning_rate=True),
        FQI(3, 2, 4, learning_rate=1.0),
        FQI(3, 2, 4, terminal=(0,)),
        FQI(3, 2, 4, learning_rate=float("inf")),
        FQI(3, 2, 4, learning_rate="inf"),  # type: ignore[arg-type]
        TDFP(3, 2, 4, (1,)),
    ]
    assert len({text(learner) for learner in alike}) == len(alike)


@pytest.mark.parametrize("size", [60, 2000, 20_000])
def test_one_entry_of_an_array_of_any_size_counts(size: int) -> None:
    rewards = np.linspace(0.0, 1.0, size).reshape(1, -1, 1)
    other = rewards.copy()
    other[0, size // 2, 0] = np.nextafter(other[0, size // 2, 0], 1)
    learner, changed = (APVI(size, 1, 3, rewards=jnp.asarray(r)) for r in (rewards, other))
    assert text(learner) != text(changed)
    strided = APVI(size, 1, 3, rewards=np.repeat(rewards, 2, axis=1)[:, ::2])  # type: ignore[arg-type]
    assert text(strided) == text(learner)
    assert len(text(learner)) < 60_000


def test_what_cannot_be_written_down_is_refused() -> None:
    class Odd(eqx.Module):
        f: object

    odd: Any = Odd(lambda x: x)
    with pytest.raises(TypeError, match=r"Odd.f"):
        settings_of(odd)
    assert known_settings(odd)["settings"] is None and known_settings(odd)["class"].endswith("Odd")


def declared_facts(learner: AbstractLearner) -> list[list[object]]:
    """Everything about the declarations that a certificate rests on."""
    made = learner.declare(12) if isinstance(learner, AbstractOnlineLearner) else learner.declare()  # type: ignore[attr-defined]
    return [
        [type(d), d.name, d.access, d.times, d.weight, d.group, d.sampling, getattr(d, "smallest", None)]
        + ([] if d.statistic is None else _statistic_facts(d.statistic))
        for d in made
    ]


def _statistic_facts(statistic: AbstractStatistic) -> list[object]:
    norms: list[object] = []
    for norm in (statistic.l1, statistic.l2):
        for adjacency in ("replace-one", "add-remove"):
            try:
                norms.append(norm(adjacency))
            except ValueError as refusal:  # for Gaussian noise only
                norms.append(str(refusal))
    symbols = getattr(statistic, "num_symbols", None)
    return [type(statistic), statistic.shape, statistic.symmetric, symbols, *norms]


KINDS = {"offline": ["riverswim", "icu-sepsis"], "online": ["riverswim-inhomogeneous", "synthetic-linear"]}
PAIRS = [(r.name, w) for r in recipes.values() for w in KINDS.get(r.family, [WORLDS[r.family]])]


@pytest.mark.parametrize(
    ("name", "world"),
    [pytest.param(*one, marks=pytest.mark.slow) if "icu-sepsis" in one else one for one in PAIRS],
)
def test_a_rebuilt_learner_declares_the_same(name: str, world: str) -> None:
    learner = recipes[name].build(build(world), 1000)
    rebuilt = learner_of(json.loads(text(learner)))
    assert declared_facts(rebuilt) == declared_facts(learner)
    assert rebuilt.bounds() == learner.bounds()
    if isinstance(learner, AbstractOnlineLearner) and isinstance(rebuilt, AbstractOnlineLearner):
        assert rebuilt.blocks(5000).tolist() == learner.blocks(5000).tolist()


def test_what_depends_on_numbers_that_were_not_kept_cannot_be_derived() -> None:
    """`UCRLVTR` calibrates to the largest reward: from a hash of the rewards nothing is derived, wrong or right."""
    rewards = jnp.linspace(0.0, 1.0, 5000).reshape(1, 50, 100)
    rebuilt = learner_of(settings_of(UCRLVTR(rewards, 3)))
    with pytest.raises((AttributeError, TypeError)):
        rebuilt.declare(4)  # type: ignore[attr-defined]


def test_only_own_classes_and_sensible_settings_are_rebuilt() -> None:
    settings = settings_of(APVI(3, 2, 4))
    with pytest.raises(NotOursError, match="os.system"):
        learner_of({**settings, "class": "os.system"})
    with pytest.raises(ValueError, match="strictly between"):
        learner_of({**settings, "settings": {**settings["settings"], "visit_share": 2.0}})
    with pytest.raises(ValueError, match="it has"):
        learner_of({**settings, "settings": {"horizon": 3}})
    with pytest.raises(ValueError, match="not those of a learner"):
        learner_of(settings_of(OneHotFeatures(3, 2)))  # type: ignore[arg-type]
