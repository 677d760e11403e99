"""Keyed fingerprints of ids, so that ids need not be kept.

An id that appears again after other ids shows that a table is not grouped. 4 bytes per id are kept to notice it, and
suspects are looked up in a second pass over the ids.
"""

from array import array

import numpy as np

from privrl.shapes import Shaped, UInt8, UInt32, UInt64

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio, the increment of splitmix64


def new_salt() -> int:
    """64 secret bits from the operating system."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])


def mixed(x: UInt64[np.ndarray, " N"]) -> UInt64[np.ndarray, " N"]:
    """A fixed bijection of 64-bit words in which every output bit depends on every input bit (splitmix64)."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hash_integers(values: Shaped[np.ndarray, " N"], salt: int) -> UInt64[np.ndarray, " N"]:
    """Keyed 64-bit hashes of integer ids."""
    return mixed(mixed(values.astype(np.uint64) ^ np.uint64(salt)) + np.uint64(salt))


def hash_strings(
    offsets: Shaped[np.ndarray, " M"], data: UInt8[np.ndarray, " B"], salt: int
) -> UInt64[np.ndarray, " N"]:
    """Keyed 64-bit hashes of byte strings data[offsets[i]:offsets[i + 1]].

    The string b_0 b_1 ... has the hash mix(sum_j (b_j + 1) w_j), with secret weights w_j: linear, hence one cumulative
    sum for all strings, and two different strings share the sum with probability below 2^-55.
    """
    offsets = offsets.astype(np.int64)
    data = data[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    lengths = np.diff(offsets)
    weights = mixed(np.uint64(salt) + _GOLDEN * np.arange(lengths.max(initial=0), dtype=np.uint64))
    position = np.arange(len(data)) - np.repeat(offsets[:-1], lengths)
    terms = (data.astype(np.uint64) + np.uint64(1)) * weights[position]
    prefix = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    return mixed((prefix[offsets[1:]] - prefix[offsets[:-1]]) ^ np.uint64(salt))


def hash_pairs(unit: UInt64[np.ndarray, " N"], episode: UInt64[np.ndarray, " N"]) -> UInt64[np.ndarray, " N"]:
    """The hash of each (unit, episode), from their hashes."""
    return mixed(mixed(unit) + episode)


class Fingerprints:
    """The ids seen so far, 4 bytes each; `repeated` finds those that may have occurred twice."""

    def __init__(self) -> None:
        self._seen = array("I")  # grows in place: no second copy in memory

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, hashes: UInt64[np.ndarray, " N"]) -> None:
        self._seen.frombytes(fingerprint(hashes).tobytes())

    def repeated(self) -> UInt32[np.ndarray, " M"]:
        """Fingerprints that occur more than once; among millions of ids a few collide by chance."""
        seen = np.frombuffer(self._seen, np.uint32)
        seen.sort()
        return np.unique(seen[1:][seen[1:] == seen[:-1]])


def fingerprint(hashes: UInt64[np.ndarray, " N"]) -> UInt32[np.ndarray, " N"]:
    """The upper half of a hash."""
    return (hashes >> np.uint64(32)).astype(np.uint32)
