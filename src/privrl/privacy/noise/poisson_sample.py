"""Poisson samples whose draws can be computed one by one, from the number of a record.

The draw of record e uses word e of AES-256 in counter mode. So several processes that sum different records draw the
sample that one process would draw.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool

_WORDS_PER_BLOCK = 2  # words of 64 bits in a block of the cipher
_CHUNK = 2**16  # words computed at a time


@dataclass(frozen=True)
class PoissonSample:
    """A secret random draw for every record of a release, by its number.

    Attributes:
        key: 32 secret bytes, used for the sample of one release and for nothing else.
        share: the probability with which a record is drawn.

    **Formal guarantee.** Draw e compares the upper 52 bits of word e with floor(share 2^52). With a uniform key that is
    used for one release, draws are independent, and no record is drawn with more than the share's probability
    (assuming that AES-256 is a pseudorandom permutation). They do not depend on how many are computed at once, or by
    which process.

    >>> PoissonSample(bytes(32), 1.0).draws(first=7, count=3)
    array([ True,  True,  True])
    """

    key: bytes = field(repr=False)
    share: float

    def __post_init__(self) -> None:
        if len(self.key) != 32:
            raise ValueError(f"`key` has {len(self.key)} bytes; AES-256 needs 32.")
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"`share` is {self.share}; it must lie in (0, 1].")

    def draws(self, first: int, count: int) -> Bool[np.ndarray, " n"]:
        """Which of the records `first`, ..., `first + count - 1` are drawn."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        if first < 0 or count < 0:
            raise ValueError(f"`first` is {first} and `count` is {count}; both must be 0 or more.")
        begin = first // _WORDS_PER_BLOCK
        encryptor = Cipher(algorithms.AES(self.key), modes.CTR(begin.to_bytes(16, "big"))).encryptor()
        threshold = np.uint64(np.floor(self.share * 2.0**52))
        missing, drawn = first % _WORDS_PER_BLOCK + count, []
        while missing > 0:
            words = np.frombuffer(encryptor.update(bytes(8 * min(missing, _CHUNK))), "<u8")
            drawn.append(words >> np.uint64(12) < threshold)
            missing -= len(words)
        return np.concatenate([np.zeros(0, bool), *drawn])[first % _WORDS_PER_BLOCK :]
