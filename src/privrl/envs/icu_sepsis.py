"""ICU-Sepsis: the treatment of sepsis as a finite world, estimated from MIMIC-III (Choudhary et al. 2024).

716 states: 713 clusters of patients, then death, survival and a state after both. 25 actions: five doses of fluids by
five of vasopressors. Entering survival pays 1. The arrays come from the files of the `icu-sepsis` package, which is
found but not imported.
"""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Env, at_least
from privrl.mdp.features import OneHotFeatures
from privrl.mdp.types import TabularMDP

_DEATH, _SURVIVAL, _AFTER = 713, 714, 715


def _assets() -> Path:
    spec = importlib.util.find_spec("icu_sepsis")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "envs" / "assets" / "dynamics.npz"
        if path.is_file():
            return path
    raise ImportError(
        "Environment `icu-sepsis` needs the package that carries its data. Install it with "
        "`pip install privrl[icu-sepsis]`."
    )


def ICUSepsis(horizon: int = 20) -> Env:
    """Sepsis patients and their doctors; the behaviour policy is the doctors'.

    Arguments:
        horizon: decisions per stay, four hours apart; stays that are not over by then pay nothing.
    """
    H = at_least("horizon", horizon, 1)
    with np.load(_assets()) as data:
        P, initial, doctors = data["tx_mat"], data["d_0"], data["expert_policy"].copy()
    S, A, _ = P.shape
    ends = [_DEATH, _SURVIVAL, _AFTER]
    doctors[ends] = 1.0 / A  # nobody is treated there, and a policy needs probabilities
    r = P[:, :, _SURVIVAL].copy()
    r[ends] = 0.0
    return Env(
        mdp=TabularMDP(
            jnp.asarray(P / P.sum(axis=-1, keepdims=True))[None],
            jnp.asarray(r)[None],
            jnp.asarray(initial / initial.sum()),
            H,
        ),
        features=OneHotFeatures(S, A),
        behaviour=jnp.asarray(doctors / doctors.sum(axis=-1, keepdims=True)),
        name="icu-sepsis",
        arguments=(("horizon", H),),
        terminal=(_DEATH, _SURVIVAL, _AFTER),
        arrival=jnp.zeros(S).at[_SURVIVAL].set(1.0),
    )
