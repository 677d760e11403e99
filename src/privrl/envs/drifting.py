"""Worlds that change as people arrive: a kernel that swings to another one and back, at public times."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Real


class Drift(eqx.Module):
    """The target of a drift, and its speed.

    After n people the kernel is (1 - w) times the world's own plus w times the other one, w = (1 - cos(2 pi n /
    period))/2: it is the other one after half a period, and the world's own again after a whole one.

    Arguments:
        kernel: the other kernel.
        period: the period, in people.
    """

    kernel: Float[Array, "G S A S"]
    period: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.period < 1:
            raise ValueError(f"`period` is {self.period}; it must be at least 1 person.")

    def share(self, seen: Real[Array, "..."] | int) -> Float[Array, "..."]:
        """w after `seen` people."""
        return (1.0 - jnp.cos(2.0 * jnp.pi * jnp.asarray(seen, float) / self.period)) / 2.0

    def mix(self, own: Float[Array, "G S A S"], seen: Real[Array, ""] | int) -> Float[Array, "G S A S"]:
        """The kernel after `seen` people."""
        w = self.share(seen)
        return (1.0 - w) * own + w * self.kernel
