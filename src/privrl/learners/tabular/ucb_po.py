"""UCB-PO: optimistic policy optimisation on transition counts.

After Private-UCB-PO of Chowdhury and Zhou (2022). The current policy is evaluated with the widths of
`hoeffding_ucbvi.py`, and improved by a step of mirror descent,

    log pi(a | s, h)  +=  sqrt(2 ln A / k) L Q_h(s,a) / max Q

with L the public number of people in the last block and k that of all so far: the sum of the steps of L people. If
people return, both count first arrivals, so steps are shorter than with one step for each record.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import OnlineAsk, Plan, Releases
from privrl.learners.tabular.hoeffding_ucbvi import hoeffding_width
from privrl.learners.tabular.optimistic_counts import AbstractOptimist
from privrl.mdp.types import TabularPolicy


class _Memory(eqx.Module):
    logits: Float[Array, "H S A"]
    num_seen: Int[Array, ""]


class UCBPO(AbstractOptimist):
    """Optimistic policy optimisation; the arguments are those of `AbstractOptimist`."""

    def init(self) -> _Memory:
        return _Memory(jnp.zeros((self.horizon, *self.rewards.shape[1:])), jnp.zeros((), int))

    def plan(
        self, memory: _Memory, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]
    ) -> tuple[_Memory, Plan]:
        del ask
        policy = jax.nn.softmax(memory.logits, axis=-1)
        Q = self.optimistic_values(self.model(released), hoeffding_width, policy)
        length, people = num_seen - memory.num_seen, jnp.maximum(num_seen, 1)
        step = math.sqrt(2.0 * math.log(Q.shape[-1])) * length / jnp.sqrt(people)
        logits = memory.logits + step * Q / jnp.maximum(Q.max(), 1e-12)
        logits = logits - logits.max(axis=-1, keepdims=True)
        return _Memory(logits, num_seen), Plan(TabularPolicy(jax.nn.softmax(logits, axis=-1)))
