"""Exact dynamic programming in finite worlds: values, occupancies, regret.

Regret is never estimated from sampled returns: with S states and H steps one backward pass gives it exactly,

    Q_h = r_h + P_h V_{h+1},   V*_h = max_a Q_h,   V^pi_h = sum_a pi_h(a|.) Q_h,   V_{H+1} = 0.

Everything is `jit`-able and `vmap`-able. A stationary world keeps its single stage: it is closed over by the scan, so
its kernel is never copied H times.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.mdp.types import TabularMDP, TabularPolicy

Stage = tuple[Float[Array, "S A S"], Float[Array, "S A"]]


def scan_stages(
    mdp: TabularMDP,
    body: Callable[[Any, Any, Stage], tuple[Any, Any]],
    carry: Any,
    inputs: Any,
    *,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`lax.scan` over the H stages, handing each step its own (transition, reward), whatever the number of stages G."""
    if mdp.transition.shape[0] == 1:
        stage = (mdp.transition[0], mdp.reward[0])

        def stationary(carry: Any, x: Any) -> tuple[Any, Any]:
            return body(carry, x, stage)

        return jax.lax.scan(stationary, carry, inputs, length=mdp.horizon, reverse=reverse)

    def staged(carry: Any, xs: Any) -> tuple[Any, Any]:
        x, stage = xs
        return body(carry, x, stage)

    return jax.lax.scan(staged, carry, (inputs, (mdp.transition, mdp.reward)), length=mdp.horizon, reverse=reverse)


def _backup(stage: Stage, V: Float[Array, " S"]) -> Float[Array, "S A"]:
    P, r = stage
    return r + jnp.matmul(P, V, precision="highest")


def optimal_values(mdp: TabularMDP) -> tuple[Float[Array, "H_plus_1 S"], Float[Array, "H S A"]]:
    """The best values `V [H+1, S]` (last row zero) and action values `Q [H, S, A]`."""

    def body(V: Array, _: None, stage: Stage) -> tuple[Array, tuple[Array, Array]]:
        Q = _backup(stage, V)
        V = Q.max(axis=-1)
        return V, (V, Q)

    last = jnp.zeros(mdp.num_states)
    _, (V, Q) = scan_stages(mdp, body, last, None, reverse=True)
    return jnp.concatenate([V, last[None]]), Q


def policy_values(mdp: TabularMDP, policy: TabularPolicy) -> Float[Array, "H_plus_1 S"]:
    """The values `V [H+1, S]` of a policy (last row zero)."""

    def body(V: Array, pi: Array, stage: Stage) -> tuple[Array, Array]:
        V = jnp.sum(pi * _backup(stage, V), axis=-1)
        return V, V

    last = jnp.zeros(mdp.num_states)
    _, V = scan_stages(mdp, body, last, policy.probabilities, reverse=True)
    return jnp.concatenate([V, last[None]])


def optimal_value(mdp: TabularMDP) -> Float[Array, ""]:
    """The largest expected return from the initial distribution."""
    return jnp.sum(mdp.initial * optimal_values(mdp)[0][0])


def policy_value(mdp: TabularMDP, policy: TabularPolicy) -> Float[Array, ""]:
    """A policy's expected return from the initial distribution."""
    return jnp.sum(mdp.initial * policy_values(mdp, policy)[0])


def regret(mdp: TabularMDP, policy: TabularPolicy) -> Float[Array, ""]:
    """How much one episode of the policy loses against the best policy, in expectation."""
    return optimal_value(mdp) - policy_value(mdp, policy)


def occupancy(mdp: TabularMDP, policy: TabularPolicy) -> Float[Array, "H S A"]:
    """Probability of being in state s and taking action a at step h."""

    def body(mu: Array, pi: Array, stage: Stage) -> tuple[Array, Array]:
        taken = mu[:, None] * pi
        return jnp.einsum("sa,sax->x", taken, stage[0], precision="highest"), taken

    _, taken = scan_stages(mdp, body, mdp.initial, policy.probabilities)
    return taken
