"""A small world in which the model of an evaluation is exact, people sampled from it, and its evaluator."""

import jax
import jax.numpy as jnp
import numpy as np

import privrl
from privrl.envs.base import make_finite_env
from privrl.evaluation.evaluator import Evaluator
from privrl.mdp.planning import policy_value
from privrl.mdp.types import TabularMDP, TabularPolicy
from privrl.studies.offline.procedure import ask_curator

H, DEATH, SURVIVAL = 6, 2, 3


def world():
    """Two states, so that a straight line in a feature is exact; action 1 is better, and rarer in practice."""
    P = np.zeros((4, 2, 4))
    P[0, 0], P[0, 1] = [0.5, 0.3, 0.1, 0.1], [0.4, 0.3, 0.1, 0.2]
    P[1, 0], P[1, 1] = [0.1, 0.5, 0.3, 0.1], [0.3, 0.4, 0.1, 0.2]
    P[DEATH, :, DEATH] = P[SURVIVAL, :, SURVIVAL] = 1.0
    arrival = np.eye(4)[SURVIVAL]
    r = P @ arrival
    r[[DEATH, SURVIVAL]] = 0.0
    practice = np.array([[0.6, 0.4], [0.7, 0.3], [0.5, 0.5], [0.5, 0.5]])
    mdp = TabularMDP(jnp.asarray(P)[None], jnp.asarray(r)[None], jnp.array([0.5, 0.5, 0, 0]), H)
    return make_finite_env(
        "two-states",
        mdp,
        behaviour=jnp.asarray(practice),
        terminal=(DEATH, SURVIVAL),
        arrival=jnp.asarray(arrival),
    )


ENV, ADVICE = world(), np.array([1, 1, 0, 0])
FEATURE = jnp.array([0.6, 0.1, 0.0, 0.0])
PEOPLE = 20_000
WHOLE = float(
    policy_value(ENV.mdp, TabularPolicy(jnp.broadcast_to(jax.nn.one_hot(ADVICE, 2), (H, 4, 2))))
    - ENV.value(ENV.behaviour_policy())
)


def table(people=PEOPLE, seed=0):
    sampled = ENV.sample(ENV.behaviour_policy(), people, jax.random.key(seed))
    return privrl.data.Episodes.from_trajectories(sampled, num_states=4, num_actions=2)


def evaluator(people=PEOPLE, **settings):
    return Evaluator(
        **{
            "num_states": 4,
            "num_actions": 2,
            "horizon": H,
            "people": people,
            "advice": ADVICE,
            "practice": ENV.behaviour,
            "feature": FEATURE,
            "terminal": ENV.terminal,
            **settings,
        }
    )


def evaluated(data, evaluator, privatizer, key=None):
    """What an evaluator finds, and its certificate."""
    return ask_curator("evaluate", data, evaluator, evaluator.evaluate, privatizer, key=key, unit=None, store=None)
