"""Seeded randomness: an integer is a key."""

import operator
import secrets

import jax
from jaxtyping import PRNGKeyArray

KeyLike = int | PRNGKeyArray
"""An integer from 0, or a key that JAX made."""


def seeded_key(key: KeyLike) -> PRNGKeyArray:
    """`jax.random.key(key)` for an integer; JAX's own keys are returned as they are."""
    if isinstance(key, jax.Array):
        return key
    number = operator.index(key)
    if not 0 <= number < 2**63:
        raise ValueError(f"`key` is {number}; it must be at least 0 and below 2^63.")
    return jax.random.key(number)


def optional_key(key: KeyLike | None) -> PRNGKeyArray | None:
    """As `seeded_key`; `None`, which means noise that cannot be replayed, stays `None`."""
    return None if key is None else seeded_key(key)


def fresh_seed() -> int:
    """A seed that cannot be predicted, for a simulation that reports it so that it can be repeated."""
    return secrets.randbits(31)
