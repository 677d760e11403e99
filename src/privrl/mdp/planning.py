"""Exact dynamic programming in finite worlds: values, occupancies, regret.

Regret is never estimated from sampled returns: with S states and H steps one backward pass gives it exactly,

    Q_h = r_h + P_h V_{h+1},   V*_h = max_a Q_h,   V^pi_h = sum_a pi_h(a|.) Q_h,   V_{H+1} = 0.

Everything is compiled, by itself or as a part of its caller, and can be `vmap`ped. A stationary world keeps its single
stage: the scan closes over it, so its kernel is never copied H times.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from privrl.mdp.types import TabularMDP, TabularPolicy

Stage = tuple[Float[Array, "S A S"], Float[Array, "S A"]]


def scan_stages(
    mdp: TabularMDP,
    body: Callable[[PyTree, PyTree, Stage], tuple[PyTree, PyTree]],
    carry: PyTree,
    inputs: PyTree,
    *,
    reverse: bool = False,
) -> tuple[PyTree, PyTree]:
    """`lax.scan` over the H stages; each step receives its own (transition, reward), whatever the number of stages
    G."""
    if mdp.transition.shape[0] == 1:
        stage = (mdp.transition[0], mdp.reward[0])

        def stationary(carry: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
            return body(carry, x, stage)

        return jax.lax.scan(stationary, carry, inputs, length=mdp.horizon, reverse=reverse)

    def staged(carry: PyTree, xs: PyTree) -> tuple[PyTree, PyTree]:
        x, stage = xs
        return body(carry, x, stage)

    return jax.lax.scan(staged, carry, (inputs, (mdp.transition, mdp.reward)), length=mdp.horizon, reverse=reverse)


def _backward(
    mdp: TabularMDP, inputs: PyTree, choose: Callable[[PyTree, Array], Array]
) -> tuple[Float[Array, "H_plus_1 S"], Float[Array, "H S A"]]:
    """Backward induction: V `[H+1, S]` (last row zero) and Q `[H, S, A]`, with V_h = choose(inputs_h, Q_h)."""

    def body(V: Array, x: PyTree, stage: Stage) -> tuple[Array, tuple[Array, Array]]:
        P, r = stage
        Q = r + jnp.matmul(P, V, precision="highest")
        V = choose(x, Q)
        return V, (V, Q)

    last = jnp.zeros(mdp.num_states)
    _, (V, Q) = scan_stages(mdp, body, last, inputs, reverse=True)
    return jnp.concatenate([V, last[None]]), Q


@eqx.filter_jit
def optimal_values(mdp: TabularMDP) -> tuple[Float[Array, "H_plus_1 S"], Float[Array, "H S A"]]:
    """The best values `V [H+1, S]` (last row zero) and action values `Q [H, S, A]`."""
    return _backward(mdp, None, lambda _, Q: Q.max(axis=-1))


@eqx.filter_jit
def policy_values(mdp: TabularMDP, policy: TabularPolicy) -> Float[Array, "H_plus_1 S"]:
    """The values `V [H+1, S]` of a policy (last row zero)."""
    return _backward(mdp, policy.probabilities, lambda pi, Q: jnp.sum(pi * Q, axis=-1))[0]


@eqx.filter_jit
def optimal_value(mdp: TabularMDP) -> Float[Array, ""]:
    """The largest expected return from the initial distribution."""
    return jnp.sum(mdp.initial * optimal_values(mdp)[0][0])


@eqx.filter_jit
def policy_value(mdp: TabularMDP, policy: TabularPolicy) -> Float[Array, ""]:
    """A policy's expected return from the initial distribution."""
    return jnp.sum(mdp.initial * policy_values(mdp, policy)[0])


@eqx.filter_jit
def occupancy(mdp: TabularMDP, policy: TabularPolicy) -> Float[Array, "H S A"]:
    """Probability of being in state s and taking action a at step h."""

    def body(mu: Array, pi: Array, stage: Stage) -> tuple[Array, Array]:
        taken = mu[:, None] * pi
        return jnp.einsum("sa,sax->x", taken, stage[0], precision="highest"), taken

    _, taken = scan_stages(mdp, body, mdp.initial, policy.probabilities)
    return taken
