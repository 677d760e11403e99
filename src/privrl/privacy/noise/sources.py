"""Sources of randomness: JAX keys for simulations, and the operating system for real people.

Every seeded draw of noise in the package uses `standard_normal`, `standard_laplace` or `uniform` below, where tests
record the keys and show that none is used twice. Outside compiled code, noise is drawn from a source by name, and each
name can be drawn only once.
"""

import abc
import hashlib
import math
import os
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, PRNGKeyArray

from privrl.contracts.noise_distribution import White
from privrl.privacy.noise.random_words import Words

Origin = Literal["system", "devices", "seed"]
"""Where noise comes from: the operating system, the devices of users, or a seed that replays it."""
ORIGIN_WORDS: dict[Origin, str] = {
    "system": "cryptographic randomness from the operating system, whole numbers on a lattice",
    "devices": "on the users' devices",
    "seed": "simulation: seeded, protects no one",
}
"""The same for readers of a certificate."""

Label = tuple[str | int | np.integer, ...]
"""The name of one draw, such as `("gram", 3)`."""

Randomness = Words | PRNGKeyArray
"""Cryptographic words, or the key of a simulation."""


class NoiseReuseError(RuntimeError):
    """The same noise was requested twice. Noise is drawn once per release; keep the noisy value and read it again."""


def standard_normal(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Independent N(0, 1) entries from a key that is used for nothing else."""
    return jax.random.normal(key, shape, jnp.float64)


def standard_laplace(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Independent entries of density exp(-|x|)/2 from a key that is used for nothing else."""
    return jax.random.laplace(key, shape, jnp.float64)


def uniform(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Independent uniform entries in [0, 1) from a key that is used for nothing else."""
    return jax.random.uniform(key, shape, jnp.float64)


def white_noise(kind: White, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Standard white noise of a distribution's kind."""
    return standard_laplace(key, shape) if kind == "laplace" else standard_normal(key, shape)


class AbstractSource(abc.ABC):
    """Randomness by name, on the host: each label can be drawn once from one source."""

    origin: ClassVar[Origin]

    def __init__(self) -> None:
        self._drawn: set[bytes] = set()

    @abc.abstractmethod
    def randomness(self, label: Label) -> "Randomness":
        """The randomness from which the noise of one release is drawn."""

    @abc.abstractmethod
    def uniform(self, label: Label, shape: tuple[int, ...]) -> Float[Array | np.ndarray, "..."]:
        """Independent uniform entries in [0, 1)."""

    @abc.abstractmethod
    def secret(self, label: Label) -> bytes:
        """32 random bytes, the key of a `PoissonSample` or of a random split."""

    def _claim(self, label: Label) -> bytes:
        """A stable digest of the label, refused the second time."""
        digest = _digest(label)
        if digest in self._drawn:
            raise NoiseReuseError(
                f"Noise labelled `{label}` was already drawn from this source. Keep the noisy value and read it "
                "again, or use a new label for a new release."
            )
        self._drawn.add(digest)
        return digest


class Seeded(AbstractSource):
    """Replayable floating-point noise for simulations. The label alone decides the draw; the order does not matter."""

    origin: ClassVar[Origin] = "seed"

    def __init__(self, key: PRNGKeyArray) -> None:
        super().__init__()
        self._key = key

    def uniform(self, label: Label, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return uniform(self.randomness(label), shape)

    def secret(self, label: Label) -> bytes:
        return np.asarray(jax.random.bits(self.randomness(label), (32,), np.uint8)).tobytes()

    def randomness(self, label: Label) -> PRNGKeyArray:
        """The label's own key."""
        key = self._key
        for word in np.frombuffer(self._claim(label), "<u4"):
            key = jax.random.fold_in(key, word)
        return key


class System(AbstractSource):
    """Randomness from the operating system, which cannot be replayed: cryptographic words for every label.

    Noise from this source consists of whole numbers on a lattice (see `lattice.py`).
    """

    origin: ClassVar[Origin] = "system"

    def randomness(self, label: Label) -> Words:
        """Random words for one release."""
        self._claim(label)
        return Words()

    def uniform(self, label: Label, shape: tuple[int, ...]) -> Float64[np.ndarray, "..."]:
        return exact_uniform(self.randomness(label), shape)

    def secret(self, label: Label) -> bytes:
        self._claim(label)
        return os.urandom(32)


def exact_uniform(words: Words, shape: tuple[int, ...]) -> Float64[np.ndarray, "..."]:
    """Uniform on the midpoints (k + 1/2) 2^-52: exact in float64, symmetric about 1/2, never 0 or 1."""
    bits = words.take(math.prod(shape)) >> np.uint64(12)
    return ((bits.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)


def _digest(label: Label) -> bytes:
    """128 bits of BLAKE2b over the parts, each with its type and length, so that distinct labels differ."""
    if not label:
        raise ValueError("`label` is empty; name the release, for example `('gram', 3)`.")
    digest = hashlib.blake2b(digest_size=16)
    for part in label:
        if isinstance(part, str):
            kind, text = b"s", part.encode()
        elif isinstance(part, (int, np.integer)) and not isinstance(part, bool):
            kind, text = b"i", str(int(part)).encode()
        else:
            raise TypeError(f"`label` has a part of type {type(part).__name__}; use strings and integers.")
        digest.update(kind + len(text).to_bytes(8, "little") + text)
    return digest.digest()
