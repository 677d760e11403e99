"""Settings as plain JSON: deterministic, and different as soon as one setting differs."""

import dataclasses
import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.envs import make
from privrl.learners import APVI, FQI, PEVI, TDFP, AbstractLearner, settings_of
from privrl.mdp import OneHotFeatures, TableFeatures
from privrl.recipes import recipes

WORLDS = {"offline": "riverswim", "online": "riverswim", "control": "lq-2d", "functional": "interval-walk"}


def text(learner: AbstractLearner) -> str:
    return json.dumps(settings_of(learner), sort_keys=True, allow_nan=False)


@pytest.mark.parametrize("name", recipes)
def test_every_recipe_has_settings_and_each_of_them_counts(name: str) -> None:
    recipe = recipes[name]
    first, again = (recipe.build(make(WORLDS[recipe.family])) for _ in range(2))
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
        FQI(3, 2, 4, num_episodes=1),
        FQI(3, 2, 4, num_episodes=True),
        FQI(3, 2, 4, num_episodes=1.0),  # type: ignore[arg-type]
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

    with pytest.raises(TypeError, match=r"Odd.f"):
        settings_of(Odd(lambda x: x))  # type: ignore[arg-type]
