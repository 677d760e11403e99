"""Unpredictable random words: AES-256 in counter mode with a fresh key from the operating system.

A release creates one `Words`, draws its noise from it and drops it. The key never leaves the cipher, no two `Words`
share a key, and telling the words from uniform ones would break AES-256.
"""

import os

import numpy as np
from jaxtyping import Int64, UInt64

_WORD = np.dtype("<u8")
_CHUNK = 1 << 13  # words encrypted at a time
_ZEROS = bytes(_CHUNK * _WORD.itemsize)


class Words:
    """Uniform 64-bit words from the operating system's randomness, stretched by AES-256-CTR.

    Create one for each release. The sequence of words does not depend on how it is requested: `take(5)` and then
    `take(3)` return the same words as `take(8)`. After a fork, the child process is refused, because parent and child
    would draw the same noise.

    `key` is for tests only: noise from a known key hides nothing.
    """

    def __init__(self, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        if key is not None and len(key) != 32:
            raise ValueError(
                f"`key` has {len(key)} bytes; AES-256 needs 32. Omit `key` to use randomness of the operating system."
            )
        # The counter may start at zero because a key encrypts one sequence only.
        cipher = Cipher(algorithms.AES(os.urandom(32) if key is None else key), modes.CTR(bytes(16)))
        self._encryptor = cipher.encryptor()
        self._process = os.getpid()

    def take(self, count: int) -> UInt64[np.ndarray, " n"]:
        """The next `count` words, each uniform on [0, 2^64)."""
        if count < 0:
            raise ValueError(f"`count` is {count}; it must be 0 or more.")
        if os.getpid() != self._process:
            raise RuntimeError(
                "This `Words` was created before the process forked, so parent and child would draw the same noise. "
                "Create a new `Words` in the child."
            )
        out = np.empty(count, _WORD)
        raw, size = out.view(np.uint8).data, _WORD.itemsize
        for start in range(0, count, _CHUNK):
            piece = raw[start * size : (start + _CHUNK) * size]
            self._encryptor.update_into(_ZEROS[: len(piece)], piece)
        return out

    def below(self, bound: int, count: int) -> Int64[np.ndarray, " n"]:
        """`count` numbers, exactly uniform on the integers 0, ..., bound - 1, for a bound from 1 to 2^62.

        Words are turned into candidates by `quotient`; those beyond the bound are dropped and the others keep their
        order, so the numbers are independent. Fewer than half are dropped, and for a bound up to 2^56 fewer than 1%.
        """
        if not 1 <= bound <= 2**62:
            raise ValueError(f"`bound` is {bound}; it must be an integer from 1 to 2**62.")
        out, have = np.empty(count, np.int64), 0
        while have < count:
            # Whether a candidate is dropped says nothing about the values of those that are kept.
            candidates = quotient(self.take(count - have), bound)
            kept = candidates[candidates < bound]
            out[have : have + len(kept)] = kept
            have += len(kept)
        return out


def quotient(words: UInt64[np.ndarray, " n"], bound: int) -> Int64[np.ndarray, " n"]:
    """The upper 63 bits of each word divided by q = floor(2^63 / bound): uniform below the bound, or beyond it.

    Each of the values 0, ..., bound - 1 is the quotient of exactly q of the 2^63 halves, so given that the quotient is
    below the bound it is exactly uniform. Beyond the bound lie 2^63 mod bound < bound halves. The lowest bit of the
    word is not used and stays free for a sign. Division by one number is a multiplication and a shift: the time is the
    same for all words.
    """
    return ((words >> np.uint64(1)) // np.uint64(2**63 // bound)).view(np.int64)
