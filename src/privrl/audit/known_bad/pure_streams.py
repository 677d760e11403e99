"""Running sums with Laplace noise whose scale forgets that losses add up."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.known_bad.case import EPSILON, Audited, audit_by_counting, case, score_both_worlds
from privrl.audit.known_bad.return_attacks import attack_visits
from privrl.privacy.continual.mechanisms import BinaryTree
from privrl.privacy.noise.sources import standard_laplace
from privrl.privacy.trust.privatizers import Central

_STEPS = 8


@case(
    paper="practice",
    trials=10_000,
    flaw="the Laplace noise of a binary tree is scaled for one level",
    proof="the first person is in one interval of every level, and their losses add up",
)
def tree_of_one_level(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Eight running counts; the first person adds 0 or 1. The attacker undoes the sums, which leaves the intervals."""
    tree = BinaryTree(_STEPS, "laplace")
    scale = (1.0 if flawed else tree.factor) / EPSILON
    combine, undo = jnp.asarray(tree.matrix()), jnp.asarray(np.linalg.inv(tree.matrix()))
    column = undo @ jnp.ones(_STEPS)  # the intervals of the first person

    def log_ratio(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        released = world * jnp.ones(_STEPS) + scale * (combine @ standard_laplace(key, (_STEPS,)))
        intervals = undo @ released
        return (jnp.abs(intervals) - jnp.abs(intervals - column)).sum() / scale

    return audit_by_counting(score_both_worlds(log_ratio, key, trials), detail="4 levels")


@case(
    paper="practice",
    trials=50_000,
    flaw="a person comes three times, and the Laplace noise is that of people who come once",
    proof="the L1 norms of the columns of their three blocks add up",
)
def laplace_noise_for_one_visit(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """The stream of `noise-for-one-visit` with a pure budget."""
    attack = attack_visits(Central(epsilon=EPSILON), flawed)
    return audit_by_counting(attack.scores(key, trials), detail="3 visits")


CASES = (tree_of_one_level, laplace_noise_for_one_visit)
