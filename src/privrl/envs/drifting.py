"""Worlds that change while people come: a kernel that swings to another one and back, at public times."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Real


class Drift(eqx.Module):
    """Where a world drifts to, and how fast.

    After n people the kernel is (1 - w) of the world's own and w of the other one, w = (1 - cos(2 pi n / period))/2:
    all of the other after half a period, and back after a whole one.

    Arguments:
        kernel: the other kernel.
        period: in people.
    """

    kernel: Float[Array, "G S A S"]
    period: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.period < 1:
            raise ValueError(f"`period` is {self.period}; a drift takes at least one person.")

    def share(self, seen: Real[Array, "..."] | int) -> Float[Array, "..."]:
        """w after so many people."""
        return (1.0 - jnp.cos(2.0 * jnp.pi * jnp.asarray(seen, float) / self.period)) / 2.0

    def mix(self, own: Float[Array, "G S A S"], seen: Real[Array, ""] | int) -> Float[Array, "G S A S"]:
        """The kernel after so many people."""
        w = self.share(seen)
        return (1.0 - w) * own + w * self.kernel
