"""Hidden severity: vital signs are recorded in bins, the severity of the illness is not, and the dose depends on it.

Full states are (bins of the vital signs, severity); bin 0 of a sign and severity 0 are healthy. The right dose grows
with severity: too little makes people worse, too much is toxic, and both raise the hazard of death. Vital signs drift
towards values that depend on severity, so a bin reveals something about it, but not all. Healthier people leave.
Practice gives about the right dose for the severity that it perceives (slightly too low), so within a recorded cell
more treatment goes with more deaths: a learner that takes the table at face value learns to withhold treatment.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from privrl.envs.base import check_at_least, make_finite_env
from privrl.envs.zoo.hidden_state import HiddenEnv
from privrl.mdp.types import TabularMDP

_TIMID, _SPREAD, _ARBITRARY = (
    0.35,
    0.7,
    0.35,
)  # practice: how far doses are too low, their spread, and the share of arbitrary decisions


def _bins(signs: str) -> tuple[int, ...]:
    try:
        bins = tuple(int(n) for n in signs.split("x"))
    except ValueError:
        raise ValueError(f"`signs` is {signs!r}; give the bins of each sign, such as '4x3x3x3'.") from None
    return tuple(check_at_least("signs", n, 2) for n in bins)


def _drift(bins: int, target: float, pull: float) -> Float[np.ndarray, "b b"]:
    """A sign moves by at most one bin, mostly towards its target."""
    level = np.arange(bins)
    up, down = (0.04 + pull * np.clip(sign * (target - level), 0, 1) for sign in (1, -1))
    up[-1] = down[0] = 0.0
    return np.diag(up[:-1], 1) + np.diag(down[1:], -1) + np.diag(1 - up - down)


def HiddenSeverity(
    signs: str = "4x3x3x3",
    severities: int = 5,
    doses: int = 5,
    horizon: int = 20,
    follows: float = 0.6,
    seed: int = 0,
) -> HiddenEnv:
    """Vital signs in bins; severity is not recorded, and the dose depends on it.

    Arguments:
        signs: bins of each vital sign, at least 2; "4x3x3x3" makes 108 recorded cells, plus death and survival.
        severities: levels of severity, at least 2.
        doses: actions, at least 2.
        horizon: decisions per episode; episodes that are not over by then pay nothing.
        follows: how far practice follows severity, from 0 (not at all: vital signs alone) to 1.
        seed: the instance: what each sign reveals, hazards and speeds.
    """
    Y, A, H = (
        check_at_least("severities", severities, 2),
        check_at_least("doses", doses, 2),
        check_at_least("horizon", horizon, 1),
    )
    if not 0 <= follows <= 1:
        raise ValueError(f"`follows` is {follows}; it must be in [0, 1].")
    bins = _bins(signs)
    rng = np.random.default_rng([seed, Y, A, *bins])
    around = functools.partial(rng.uniform, 0.85, 1.15)
    y, a = np.arange(Y) / (Y - 1), np.arange(A) / (A - 1)
    cells = int(np.prod(bins))
    bad = np.stack(np.unravel_index(np.arange(cells), bins), axis=1) / (np.array(bins) - 1)
    tells = np.array([around() for _ in bins])

    # severity, given the dose: [Y, A, Y]
    under, over = np.clip(y[:, None] - a, 0, 1), np.clip(a - y[:, None], 0, 1)
    worse, better = 0.05 + 0.35 * around() * under, 0.34 * around() * np.exp(-1.5 * under - 2 * over) + 0.02
    worse[-1] = better[0] = 0.0
    change = np.zeros((Y, A, Y))
    for level in range(Y):
        change[level, :, level] = 1 - worse[level] - better[level]
        change[level, :, min(level + 1, Y - 1)] += worse[level]
        change[level, :, max(level - 1, 0)] += better[level]

    # signs, given the next severity: [Y, cells, cells]
    pulls = [0.6 * around() for _ in bins]
    drifts = [
        functools.reduce(np.kron, [_drift(n, t * s * (n - 1), p) for n, t, p in zip(bins, tells, pulls, strict=True)])
        for s in y
    ]

    logit = -7.2 + 3.2 * around() * y[:, None] + 1.6 * around() * under + 1.2 * around() * over
    hazard = logit + 0.6 * (bad.mean(axis=1) - 0.5)[:, None, None]  # [cells, Y, A]
    dies = 1 / (1 + np.exp(-hazard))
    leaves = (1 - dies) * (0.5 * np.clip(1 - 2 * y, 0, 1))[:, None]
    going = 1 - dies - leaves

    X = cells * Y + 2
    death, survival = X - 2, X - 1
    P = np.zeros((X, A, X))
    moved = np.einsum("cya,yaz,zcd->cyadz", going, change, np.stack(drifts))
    P[: X - 2, :, : X - 2] = moved.reshape(cells * Y, A, cells * Y)
    P[: X - 2, :, death], P[: X - 2, :, survival] = dies.reshape(-1, A), leaves.reshape(-1, A)
    P[death, :, death] = P[survival, :, survival] = 1.0
    P /= P.sum(axis=-1, keepdims=True)

    first = np.exp(-0.5 * ((y - 0.4) / 0.25) ** 2)
    arrives = [np.linalg.matrix_power(d, 3)[cells // 2] for d in drifts]
    start = np.concatenate([(np.stack(arrives, axis=1) * first / first.sum()).ravel(), [0.0, 0.0]])

    guessed = np.clip(bad.mean(axis=1), 0, 1)[:, None] * (1 - follows) + follows * y  # [cells, Y]
    aim = guessed * (A - 1) - _TIMID
    weight = np.exp(-0.5 * ((np.arange(A) - aim[..., None]) / _SPREAD) ** 2)
    treated = (1 - _ARBITRARY) * weight / weight.sum(axis=-1, keepdims=True) + _ARBITRARY / A
    practice = np.concatenate([treated.reshape(cells * Y, A), np.full((2, A), 1 / A)])

    reward = P[:, :, survival].copy()
    reward[[death, survival]] = 0.0
    full = make_finite_env(
        "hidden-severity: full",
        TabularMDP(jnp.asarray(P[None]), jnp.asarray(reward[None]), jnp.asarray(start / start.sum()), H),
        behaviour=jnp.asarray(practice),
        terminal=(death, survival),
        arrival=jnp.zeros(X).at[survival].set(1.0),
    )
    return HiddenEnv(
        full=full,
        observation=jnp.asarray(np.concatenate([np.repeat(np.arange(cells), Y), [cells, cells + 1]])),
        num_states=cells + 2,
        name="hidden-severity",
        arguments=(
            ("signs", signs),
            ("severities", Y),
            ("doses", A),
            ("horizon", H),
            ("follows", follows),
        ),
        seed=seed,
        terminal=(cells, cells + 1),
        arrival=jnp.zeros(cells + 2).at[cells + 1].set(1.0),
    )
