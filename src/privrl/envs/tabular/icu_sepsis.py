"""ICU-Sepsis: the treatment of sepsis as a finite world, estimated from MIMIC-III (Choudhary et al. 2024).

716 states: 713 clusters of patients, then death, survival and a state after both. 25 actions: five doses of fluids by
five of vasopressors. Entering survival pays 1. `icu_sepsis.npz` next to this module holds the numbers of the
`icu-sepsis` package, bit for bit (NOTICE has its licence).
"""

from importlib import resources

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.mdp.types import TabularMDP

_DEATH, _SURVIVAL, _AFTER = 713, 714, 715
_STATES, _ACTIONS = 716, 25


def _published() -> tuple[Float64[np.ndarray, "S A S"], Float64[np.ndarray, " S"], Float64[np.ndarray, "S A"]]:
    """Transitions, initial states and the doctors' policy.

    88% of the transitions are impossible, and the others share 20,654 values. For each possible one in row-major order,
    the file holds its distance from the one before (`gaps`) and the position of its value in `values` (`index`).
    """
    with resources.files(__package__).joinpath("icu_sepsis.npz").open("rb") as file, np.load(file) as data:
        transitions = np.zeros(_STATES * _ACTIONS * _STATES)
        transitions[np.cumsum(data["gaps"], dtype=np.int64)] = data["values"][data["index"]]
        return transitions.reshape(_STATES, _ACTIONS, _STATES), data["d_0"], data["expert_policy"]


def ICUSepsis(horizon: int = 20) -> Env:
    """Sepsis patients and their doctors; the behaviour policy is the doctors'.

    Arguments:
        horizon: decisions per episode, four hours apart; episodes that are not over by then pay nothing.
    """
    H = check_at_least("horizon", horizon, 1)
    P, initial, doctors = _published()
    S, A = doctors.shape
    ends = [_DEATH, _SURVIVAL, _AFTER]
    doctors[ends] = 1.0 / A  # no patient is treated there, but a policy needs probabilities
    r = P[:, :, _SURVIVAL].copy()
    r[ends] = 0.0
    P, initial = P / P.sum(axis=-1, keepdims=True), initial / initial.sum()
    return make_finite_env(
        "icu-sepsis",
        TabularMDP(jnp.asarray(P[None]), jnp.asarray(r[None]), jnp.asarray(initial), H),
        behaviour=jnp.asarray(doctors / doctors.sum(axis=-1, keepdims=True)),
        arguments=(("horizon", H),),
        terminal=(_DEATH, _SURVIVAL, _AFTER),
        arrival=jnp.asarray(np.eye(S)[_SURVIVAL]),
    )
