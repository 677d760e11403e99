"""Encode each episode as a message of bytes, and combine messages into the keyed digest of a table.

A message consists of one byte that marks the optional columns, the length of the unit's canonical id and the id, the
same for the episode's id, and the rows in 29 bytes each. Lengths come first and all rows have one size, so two
different episodes never have the same message, and every row is in exactly one message. Numbers are encoded by value
(int64, int32, IEEE doubles, little endian), so neither the width of a column nor its encoding matters. A next state
that is null and one that is -1 both mean "not recorded" and have the same encoding. If propensities were logged, the
first byte marks this, and a row ends with its propensity as a double. The same holds for the two columns that are only
reported on (`mdp/reported_columns.py`), which come last: both are doubles, with one encoding of a missing group.

If states are vectors, the first byte marks this, their dimension follows it, and a row holds them as doubles. They are
encoded as they are learned from: a value outside its bounds and the bound are equal, and so are all doses of one
action.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from privrl.data.rows.row_checks import Rows
from privrl.data.rows.transitions import Block
from privrl.data.schema.columns import canonical_ids
from privrl.shapes import Int, Shaped

_WORDS = 8  # words of 32 bits in one hash


@dataclass(frozen=True)
class RowFormat:
    """The optional columns of a table's rows, and the dimension of their vectors (0: states are numbers)."""

    next_states: bool
    ended: bool
    dim: int
    logged: bool = False
    reported: bool = False

    @property
    def row(self) -> np.dtype:
        """The NumPy type of one row in bytes."""
        state: tuple[object, ...] = ("<i4",) if self.dim == 0 else ("<f8", (self.dim,))
        after = [("next", *state)] if self.dim == 0 or self.next_states else []
        more: list[tuple[object, ...]] = [("logged", "<f8")] if self.logged else []
        more += [("extras", "<f8", (2,))] if self.reported else []
        return np.dtype(
            [("step", "<i8"), ("state", *state), ("action", "<i4"), ("reward", "<f8"), *after, ("ended", "u1"), *more]
        )

    def head(self, unit: bytes, episode: bytes | None) -> bytes:
        """The bytes before the rows of an episode."""
        marks = (episode is not None, self.next_states, self.ended, self.dim > 0, self.logged, self.reported)
        given = sum(mark << place for place, mark in enumerate(marks))
        dim = self.dim.to_bytes(8, "big") if self.dim else b""
        name = episode or b""
        return b"%c%b%b%b%b%b" % (given, dim, len(unit).to_bytes(8, "big"), unit, len(name).to_bytes(8, "big"), name)

    def pack(self, **columns: Shaped[np.ndarray, "R ..."] | None) -> bytes:
        """The bytes of the rows, one after another (`None`: the column is not given)."""
        given = {name: column for name, column in columns.items() if column is not None}
        rows = np.zeros(len(given["step"]), self.row)
        for name, column in given.items():
            rows[name] = column
        return rows.tobytes()

    def messages(self, heads: Sequence[bytes], data: bytes, starts: Int[np.ndarray, " E"]) -> list[bytes]:
        """The message of each episode: its head and its rows. Rows before the first start are left out."""
        cuts = [*(starts * self.row.itemsize).tolist(), len(data)]
        return [head + data[a:b] for head, a, b in zip(heads, cuts, cuts[1:], strict=False)]


def _dim(states: Shaped[np.ndarray, "R *D"]) -> int:
    return states.shape[1] if states.ndim > 1 else 0


def encode_block(block: Block, ids: Iterable[bytes], next_states: bool) -> list[bytes]:
    """The messages of episodes in memory, which have no ids of their own.

    Arguments:
        block: the episodes.
        ids: the id of the unit of each episode.
        next_states: whether next states were recorded; otherwise they follow from the states.
    """
    form = RowFormat(next_states, False, _dim(block.states), block.propensities is not None, block.extras is not None)
    given = {"next": block.next_states if next_states else None, "logged": block.propensities, "extras": block.extras}
    data = form.pack(step=block.steps, state=block.states, action=block.actions, reward=block.rewards, **given)
    starts = np.cumsum(block.lengths) - block.lengths
    return form.messages([form.head(unit, None) for unit in ids], data, starts)


class EpisodeEncoder:
    """Encode the episodes of a stream of rows as each is completed; only the open episode is kept."""

    def __init__(self) -> None:
        self._open: tuple[int, bytes] | None = None

    def add(self, rows: Rows) -> tuple[Int[np.ndarray, " E"], list[bytes]]:
        """The owners and the messages of the episodes that these rows complete."""
        known = {"next": rows.next_states, "ended": rows.ended, "logged": rows.propensities, "extras": rows.extras}
        after, ended, logged, extras = (column is not None for column in known.values())
        form = RowFormat(after, ended, _dim(rows.states), logged, extras)
        data = form.pack(step=rows.steps, state=rows.states, action=rows.actions, reward=rows.rewards, **known)
        units = canonical_ids(rows.unit_ids)
        names = [None] * len(units) if rows.episode_ids is None else canonical_ids(rows.episode_ids)
        heads = [form.head(unit, name) for unit, name in zip(units, names, strict=True)]
        begun = list(zip(rows.unit.tolist(), form.messages(heads, data, rows.starts), strict=True))
        if self._open is not None:
            before = int(rows.starts[0]) if len(rows.starts) else len(rows.steps)
            begun.insert(0, (self._open[0], self._open[1] + data[: before * form.row.itemsize]))
        self._open = begun.pop()
        return _apart(begun)

    def finish(self) -> tuple[Int[np.ndarray, " E"], list[bytes]]:
        """The last episode."""
        return _apart([] if self._open is None else [self._open])


def _apart(episodes: list[tuple[int, bytes]]) -> tuple[Int[np.ndarray, " E"], list[bytes]]:
    return np.array([unit for unit, _ in episodes], np.int64), [message for _, message in episodes]


def sum_hashes(hash_of: Callable[[bytes], bytes], several: Iterable[list[bytes]]) -> bytes:
    """The sum of the hashes of all messages modulo 2^256.

    **Formal guarantee.** It does not depend on the order of the messages. For a random function in place of the hash,
    two multisets of messages, chosen without its values, in which a multiplicity differs by m have the same sum with
    probability at most m 2^-256 (`docs/proofs/tables.md#a-changed-table-is-refused`).
    """
    total = np.zeros(_WORDS, object)
    for some in several:
        words = np.frombuffer(b"".join(map(hash_of, some)), "<u4").reshape(-1, _WORDS)
        total += words.sum(axis=0, dtype=np.uint64).astype(object)
    number = sum(int(word) << (32 * place) for place, word in enumerate(total))
    return (number % 2**256).to_bytes(32, "big")
