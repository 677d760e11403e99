"""Checked episodes kept between passes: rectangles of narrow numbers, in memory or in a scratch file.

A table is read and checked once. What is summed afterwards are its episodes, kept in the narrowest types that hold
every number exactly, and padded to one of a few widths. The width of an episode depends on its own length and the
public horizon alone, so the floating-point numbers that are made of it depend on nobody else, nor on files and batches.
"""

import contextlib
import ctypes
import itertools
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import IO, Any

import numpy as np

from privrl.data.rows.transitions import Block, not_recorded
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Bounds
from privrl.mdp.measurements import NOT_RECORDED
from privrl.shapes import Bool, Int, Shaped

MAX_MEMORY_BYTES = 2**26
"""So many bytes of episodes are kept in memory; where they are more, all of them are in a scratch file."""

_SMALLEST, _GROWTH = 8, 2.5  # widths
_CHUNK_ROWS = 2**16
_NO_ROOM = (
    "Let `TMPDIR` name a folder with room for 16 bytes a row (more for measurements), or give a larger `in_memory`."
)
_Place = tuple[int, Any, tuple[int, ...]]  # of an array in a scratch file: where it begins, its type and its shape
_WHOLE_TYPES = (np.int8, np.int16, np.int32)


def release_memory() -> None:
    """Gives the pages of freed arrays back to the operating system: glibc would keep them for later, more than 100 MB
    after a pass over a long table. Elsewhere it does nothing."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def padded_widths(horizon: int) -> tuple[int, ...]:
    """The widths to which episodes are padded: 8, 20, 50, ... well below the horizon, and the horizon."""
    ladder = (int(_SMALLEST * _GROWTH**k) for k in itertools.count())
    return (*itertools.takewhile(lambda width: 1.5 * width <= horizon, ladder), horizon)


def padded_width(lengths: Int[np.ndarray, "*n"], horizon: int) -> Int[np.ndarray, "*n"]:
    """The smallest width that holds each length."""
    ladder = np.asarray(padded_widths(horizon))
    return ladder[np.searchsorted(ladder, lengths)]


@dataclass(frozen=True, repr=False)
class Rectangle:
    """Episodes of one padded width W, as `Trajectory` has them, in narrow types; `place` is where each stands in its
    chunk, and `unit` whose it is."""

    place: Int[np.ndarray, " n"]
    unit: Int[np.ndarray, " n"]
    length: Int[np.ndarray, "n *E"]
    states: Shaped[np.ndarray, "n *E_W_D"]
    actions: Int[np.ndarray, "n *E_W"]
    rewards: Shaped[np.ndarray, "n *E_W"]
    next_states: Shaped[np.ndarray, "n *E_W_D"]

    @property
    def width(self) -> int:
        return int(self.actions.shape[-1])

    @property
    def arrays(self) -> tuple[Shaped[np.ndarray, "n ..."], ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def take(self, rows: Any) -> "Rectangle":
        """Some of its episodes: any index of an array."""
        return Rectangle(*(array[rows] for array in self.arrays))

    def pad(self, size: int) -> "Rectangle":
        """With empty episodes up to so many."""
        missing, vectors = size - len(self.place), self.states.ndim > self.actions.ndim
        empty = Rectangle(*(np.zeros((missing, *array.shape[1:]), np.int8) for array in self.arrays))
        none = np.full(empty.states.shape, NOT_RECORDED, np.float32) if vectors else empty.states - np.int8(1)
        return concatenate([self, replace(empty, next_states=none)])


def concatenate(several: list[Rectangle]) -> Rectangle:
    """Rectangles of one width, one after another; where types differ, the wider one, which holds both exactly."""
    return Rectangle(*(np.concatenate(arrays) for arrays in zip(*(one.arrays for one in several), strict=True)))


@dataclass(frozen=True, repr=False)
class Chunk:
    """`count` episodes that follow each other, after the `first` ones; a unit is in one chunk with all of its own."""

    first: int
    count: int
    rectangles: tuple[Rectangle, ...]

    @property
    def nbytes(self) -> int:
        return sum(rectangle.nbytes for rectangle in self.rectangles)

    @classmethod
    def from_block(cls, block: Block, first: int, bounds: Bounds) -> "Chunk":
        """Cuts a block into rectangles."""
        starts, each = np.cumsum(block.lengths) - block.lengths, padded_width(block.lengths, bounds.horizon)
        made = []
        for width in np.unique(each).tolist():
            place = np.flatnonzero(each == width).astype(np.int32)
            lengths = block.lengths[place]
            taken = np.arange(width) < lengths[:, None]
            rows = np.where(taken, starts[place][:, None] + np.arange(width), 0)
            states = _padded(block.states, rows, taken, 0.0)
            after = _padded(block.next_states, rows, taken, not_recorded(block.states))
            actions, rewards = (_padded(column, rows, taken, 0.0) for column in (block.actions, block.rewards))
            most = (bounds.num_states, bounds.num_actions)
            states, after = (_narrow_floats(x) if bounds.features else _narrow(x, most[0]) for x in (states, after))
            unit, length = _narrow(block.unit[place], None), _narrow(lengths, bounds.horizon)
            narrow = (states, _narrow(actions, most[1]), _narrow_floats(rewards), after)
            made.append(Rectangle(place, unit, length, *narrow))
        return cls(first, len(block.lengths), tuple(made))

    def to_block(self) -> Block:
        """The episodes laid end to end again, as they were."""
        lengths, unit = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        for one in self.rectangles:
            lengths[one.place], unit[one.place] = one.length, one.unit
        starts, rows = np.cumsum(lengths) - lengths, int(lengths.sum())
        columns: dict[str, np.ndarray] = {}
        for one in self.rectangles:
            taken = np.arange(one.width) < one.length[:, None]
            at = (starts[one.place][:, None] + np.arange(one.width))[taken]
            for name in ("states", "actions", "rewards", "next_states"):
                values = getattr(one, name)
                wide = np.float64 if name == "rewards" or values.ndim > 2 else np.int32
                columns.setdefault(name, np.empty((rows, *values.shape[2:]), wide))[at] = values[taken]
        return Block(unit, lengths, **columns)

    def select_units(self, chosen: Bool[np.ndarray, " U"], number: Int[np.ndarray, " U"], first: int) -> "Chunk":
        """The episodes of the chosen units, which get these numbers."""
        keep = np.zeros(self.count, bool)
        for one in self.rectangles:
            keep[one.place] = chosen[one.unit]
        place, kept = np.cumsum(keep) - 1, []
        for one in self.rectangles:
            some = one.take(np.flatnonzero(keep[one.place]))
            kept.append(replace(some, place=place[some.place].astype(np.int32), unit=number[some.unit]))
        return Chunk(first, int(keep.sum()), tuple(one for one in kept if len(one.place)))


class EpisodeCache:
    """The episodes of a data set, in memory up to `limit` bytes, and otherwise in a scratch file.

    The file has no name and belongs to its owner alone (mode 0600), in the folder for temporary files (`TMPDIR`); it
    is gone when the process is. It holds episodes without ids.
    """

    def __init__(self, bounds: Bounds, limit: int = MAX_MEMORY_BYTES) -> None:
        self._bounds, self._limit = bounds, limit
        self._waiting: list[Block] = []
        self._chunks: list[Any] = []
        self._file: IO[bytes] | None = None
        self._first = self._bytes = 0

    def add(self, block: Block) -> None:
        """Keeps one more block; its episodes are whole, and all of a unit are in it."""
        if len(block.lengths):
            self._waiting.append(block)
        if sum(len(one.states) for one in self._waiting) >= _CHUNK_ROWS:
            self._cut()

    @property
    def nbytes(self) -> int:
        self._cut()
        return self._bytes

    def __iter__(self) -> Iterator[Chunk]:
        self._cut()
        for one in self._chunks:
            yield one if self._file is None else self._read(*one)

    def _cut(self) -> None:
        """Makes a chunk of what is waiting."""
        if not self._waiting:
            return
        chunk = Chunk.from_block(Block.concatenate(self._waiting), self._first, self._bounds)
        self._first, self._waiting = self._first + chunk.count, []
        self._bytes += chunk.nbytes
        if self._file is None and self._bytes > self._limit:
            with redact_errors("There is no scratch file", _NO_ROOM):
                self._file = tempfile.TemporaryFile(prefix="privrl-")  # noqa: SIM115 as long as this object
            weakref.finalize(self, self._file.close)
            self._chunks = [self._written(one) for one in self._chunks]
        self._chunks.append(chunk if self._file is None else self._written(chunk))

    def _written(self, chunk: Chunk) -> tuple[int, int, list[list[_Place]]]:
        places = [[self._put(array) for array in rectangle.arrays] for rectangle in chunk.rectangles]
        return chunk.first, chunk.count, places

    def _put(self, array: Shaped[np.ndarray, "..."]) -> _Place:
        assert self._file is not None
        with redact_errors("The scratch file cannot be written", _NO_ROOM):
            begin = self._file.seek(0, 2)
            self._file.write(np.ascontiguousarray(array).tobytes())
        return begin, array.dtype, array.shape

    def _read(self, first: int, count: int, places: list[list[_Place]]) -> Chunk:
        return Chunk(first, count, tuple(Rectangle(*(self._array(*place) for place in one)) for one in places))

    def _array(self, begin: int, dtype: Any, shape: tuple[int, ...]) -> Shaped[np.ndarray, "..."]:
        assert self._file is not None
        self._file.seek(begin)
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(self._file.read(size), dtype).reshape(shape)


def _padded(
    column: Shaped[np.ndarray, "R *D"],
    rows: Int[np.ndarray, "n W"],
    taken: Bool[np.ndarray, "n W"],
    by: float,
) -> Shaped[np.ndarray, "n W *D"]:
    values = column[rows]
    values[~taken] = by
    return values


def _narrow(values: Int[np.ndarray, "*n"], bound: int | None) -> Int[np.ndarray, "*n"]:
    """Whole numbers from -1 to a public bound; where that is not known, from -1 to their largest."""
    most = int(values.max(initial=0)) if bound is None else bound
    kind = next((kind for kind in _WHOLE_TYPES if most <= np.iinfo(kind).max), np.int64)
    return values.astype(kind)


def _narrow_floats(values: Shaped[np.ndarray, "*n"]) -> Shaped[np.ndarray, "*n"]:
    """Numbers in the narrowest type from which every one of them comes back as it was, signs of zeros too."""
    with np.errstate(invalid="ignore", over="ignore"):
        whole = values.astype(np.int8)
        if np.array_equal(whole, values) and not np.signbit(values[values == 0]).any():
            return whole
        single = values.astype(np.float32)
    return single if np.array_equal(single.astype(np.float64), values, equal_nan=True) else values
