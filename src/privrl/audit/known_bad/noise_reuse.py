"""Noise that is drawn too seldom, or too often: once for many releases, or again for every read."""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.known_bad.case import Audited, Case
from privrl.audit.known_bad.two_worlds import DELTA, EPSILON, by_counting, in_both_worlds
from privrl.envs.synthetic import SyntheticLinear
from privrl.privacy.accounting.gdp import gdp_mu, zcdp_rho
from privrl.privacy.noise.laws import GaussianNoise, SymmetricNoise
from privrl.privacy.noise.sources import standard_normal

_HORIZON, _READS = 20, 100


def _find_everybody(key: PRNGKeyArray, trials: int, *, fresh: bool) -> Audited:
    """One run with `trials` people: the attacker is the first of them, and names the (s, a) of every other one.

    The attacker's own term is known to them, so the first difference gives away K_1, and every later difference minus
    K_1 has rank one: its eigenvector is the direction of that person's feature. Nothing else is used, in particular
    not the variance weights (which stand here at random levels below 1/H).
    """
    table = SyntheticLinear().features.table
    features = table.reshape(-1, table.shape[-1])
    right = int(_named_rightly(features, key, trials, fresh))
    rate = right / (trials - 1)
    return Audited(1 / len(features), rate, "success rate", rate >= 0.99, f"{right} of {trials - 1} people named")


@functools.partial(jax.jit, static_argnums=(2, 3))
def _named_rightly(features: Float[Array, "F d"], key: PRNGKeyArray, trials: int, fresh: bool) -> Int[Array, ""]:
    of_pairs, of_weights, of_noise = jax.random.split(key, 3)
    pairs = jax.random.randint(of_pairs, (trials,), 0, len(features))
    weights = 1 / (_HORIZON * jax.random.uniform(of_weights, (trials,), minval=1.0, maxval=2.0))
    terms = jnp.einsum("k,ki,kj->kij", weights, features[pairs], features[pairs])
    rho_0 = zcdp_rho(EPSILON, DELTA) / (4 * _HORIZON * trials)  # [sahu A1:1]
    published = _fresh(terms, rho_0, of_noise) if fresh else _printed(terms, rho_0, of_noise)
    differences = jnp.diff(published, axis=0, prepend=0.0)
    noise = differences[0] - terms[0]
    _, vectors = jnp.linalg.eigh(differences[1:] - noise[None])
    directions = features / jnp.linalg.norm(features, axis=1, keepdims=True)
    named = jnp.abs(vectors[:, :, -1] @ directions.T).argmax(axis=1)
    return (named == pairs[1:]).sum()


def _printed(terms: Float[Array, "K d d"], rho_0: float, key: PRNGKeyArray) -> Float[Array, "K d d"]:
    law = SymmetricNoise(math.sqrt(1 / (2 * rho_0)), terms.shape[1])
    K_1 = law.scaled(standard_normal(key, law.shape))  # [sahu A1:1] drawn once
    return jnp.cumsum(terms + K_1[None], axis=0)  # [sahu A1:26] as printed: the same K_1 for everybody; known bad


def _fresh(terms: Float[Array, "K d d"], rho_0: float, key: PRNGKeyArray) -> Float[Array, "K d d"]:
    """A draw for each release, of the variance that replacing a person needs, and not accumulated."""
    law = SymmetricNoise(math.sqrt(1 / rho_0), terms.shape[1])
    return jnp.cumsum(terms, axis=0) + jax.vmap(law.scaled)(standard_normal(key, terms.shape))


def _subtract_steps(key: PRNGKeyArray, trials: int, *, fresh: bool) -> Audited:
    """The Gram matrices of two steps; the person's feature is e_1 or e_2 at the first, and e_3 at the second."""
    e = jnp.eye(3)
    # Sensitivity sqrt 2, and two releases share the budget.
    law = SymmetricNoise(math.sqrt(2) * math.sqrt(2) / gdp_mu(EPSILON, DELTA), 3)

    def difference(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        first, second = jax.random.split(key) if fresh else (key, key)
        at_first = jnp.outer(e[world], e[world]) + law.scaled(standard_normal(first, law.shape))
        # The one draw of the box serves every step of its loop, though the text says independent noise.
        again = law.scaled(standard_normal(second, law.shape))  # [qiao-wang A2:2,4] as printed: known bad
        at_second = jnp.outer(e[2], e[2]) + again
        return jnp.diagonal(at_first - at_second) @ (e[1] - e[0])

    return by_counting(in_both_worlds(difference, key, trials))


def _average_reads(key: PRNGKeyArray, trials: int, *, fresh: bool) -> Audited:
    """A histogram that is read 100 times; the person is in its first or in its second cell."""
    cells = jnp.eye(4)
    law = GaussianNoise(math.sqrt(2) / gdp_mu(EPSILON, DELTA), (4,))

    def average(key: PRNGKeyArray, world: Int[Array, ""]) -> Float[Array, ""]:
        keys = jax.random.split(key, _READS) if fresh else jnp.broadcast_to(key, (_READS,))
        reads = jax.vmap(lambda key: cells[world] + law.scaled(standard_normal(key, (4,))))(keys)
        return reads.mean(axis=0) @ (cells[1] - cells[0])

    return by_counting(in_both_worlds(average, key, trials), detail=f"{_READS} reads")


CASES = (
    Case(
        name="noise-drawn-once",
        paper="sahu A1:1,26",
        flaw="one noise matrix is drawn, and the same one is added again for every user",
        proof="Λ(k+1) - Λ(k) = w φφᵀ + K₁ with one K₁ for all: whoever knows their own term knows everybody's",
        attack=functools.partial(_find_everybody, fresh=False),
        trials=1_000,
        corrected=functools.partial(_find_everybody, fresh=True),
    ),
    Case(
        name="reused-key",
        paper="practice",
        flaw="the statistics of two steps get the same noise (one key, or one draw before the loop)",
        proof="(x + z) - (y + z) = x - y: the difference of the releases has no noise at all",
        attack=functools.partial(_subtract_steps, fresh=False),
        trials=4_000,
        corrected=functools.partial(_subtract_steps, fresh=True),
    ),
    Case(
        name="redrawn-on-every-read",
        paper="practice",
        flaw="noise is drawn again each time the value is read (or the program is restarted)",
        proof="the mean of n reads has noise σ/√n, so μ grows as √n without bound",
        attack=functools.partial(_average_reads, fresh=True),
        trials=4_000,
        corrected=functools.partial(_average_reads, fresh=False),
    ),
)
