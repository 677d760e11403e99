"""`privrl.run` on what is no world of its own says what to do instead."""

import gymnasium
import jax
import pytest

import privrl
from privrl.envs.worlds_by_name import make
from privrl.recipes.all_recipes import get


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_a_run_in_gymnasium_says_what_to_do_instead(name: str) -> None:
    learner = get("ucbvi").build(privrl.envs.RiverSwim(states=3))
    with pytest.raises(ValueError, match=rf"gym:{name}.*from_gymnasium.*`privrl.fit`"):
        privrl.run(gymnasium.make(name), learner, privrl.NonPrivate(), episodes=3, key=jax.random.key(0))


@pytest.mark.parametrize("name", ["vitals", "vitals-45"])
def test_a_run_among_simulated_people_says_what_to_do_instead(name: str) -> None:
    learner = get("ucbvi").build(privrl.envs.RiverSwim(states=3))
    with pytest.raises(ValueError, match=rf"privrl fit env:{name}.*one block of them after another"):
        privrl.run(make(name), learner, privrl.NonPrivate(), episodes=3, key=jax.random.key(0))
