"""Poisson samples whose coins can be looked up one by one: whoever adds up a part of the people needs only its place.

Coin e is made of word e of AES-256 in counter mode, so several processes, each with some of the records, draw the
sample that one process would draw.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool

_WORDS = 2  # of 64 bits, in a block of the cipher
_CHUNK = 2**16  # words that are made at once


@dataclass(frozen=True)
class Coins:
    """One secret coin for every record of a release, by its number.

    Attributes:
        key: 32 secret bytes, used for the sample of one release and for nothing else.
        share: the probability with which a record is drawn.

    **Formal guarantee.** Coin e is the upper 52 bits of word e against floor(share 2^52), so with a uniform key that is
    drawn once per release coins are independent, and nobody is drawn with more than the share's probability (assuming
    that AES-256 is a pseudorandom permutation). They do not depend on how many are looked up at once, or by whom.
    """

    key: bytes = field(repr=False)
    share: float

    def __post_init__(self) -> None:
        if len(self.key) != 32:
            raise ValueError(f"`key` has {len(self.key)} bytes; AES-256 takes 32.")
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"`share` is {self.share}; it must lie in (0, 1].")

    def marks(self, first: int, count: int) -> Bool[np.ndarray, " n"]:
        """Which of the records `first`, ..., `first + count - 1` are drawn."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        if first < 0 or count < 0:
            raise ValueError(f"`first` is {first} and `count` is {count}; both must be 0 or more.")
        begin = first // _WORDS
        encryptor = Cipher(algorithms.AES(self.key), modes.CTR(begin.to_bytes(16, "big"))).encryptor()
        threshold = np.uint64(np.floor(self.share * 2.0**52))
        missing, drawn = first % _WORDS + count, []
        while missing > 0:
            words = np.frombuffer(encryptor.update(bytes(8 * min(missing, _CHUNK))), "<u8")
            drawn.append(words >> np.uint64(12) < threshold)
            missing -= len(words)
        return np.concatenate([np.zeros(0, bool), *drawn])[first % _WORDS :]
