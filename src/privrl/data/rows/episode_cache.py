"""Cache checked episodes between passes as rectangles of narrow numbers, in memory or in a scratch file.

A table is read and checked once. Later passes sum its episodes from this cache, which keeps them in the narrowest types
that hold every number exactly, padded to one of a few widths. The width of an episode depends only on its own length
and the public horizon, so the floating-point numbers computed from it depend neither on other people's records nor on
files and batches.
"""

import contextlib
import ctypes
import itertools
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import IO

import numpy as np

from privrl.data.rows.transitions import COLUMNS, Block, Index, concatenate_by_name, not_recorded
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Bounds
from privrl.mdp.measurements import NOT_RECORDED
from privrl.shapes import Bool, Int, Shaped

MAX_MEMORY_BYTES = 2**26
"""The largest cache in memory, in bytes; a larger one is kept in a scratch file as a whole."""

_SMALLEST_WIDTH, _WIDTH_GROWTH = 8, 2.5  # few widths, so few compiled programs, and little padding
_CHUNK_ROWS = 2**16  # rows of a chunk, at least
_NO_ROOM = (
    "Set `TMPDIR` to a folder with room for 16 bytes per row (more for measurements), or give a larger `in_memory`."
)
_Place = tuple[int, np.dtype, tuple[int, ...]]  # an array in the scratch file: first byte, type and shape
_Written = tuple[int, int, list[dict[str, _Place]]]  # a chunk in the scratch file: first, count and rectangles
_WHOLE_TYPES = (np.int8, np.int16, np.int32)


def release_memory() -> None:
    """Return the pages of freed arrays to the operating system.

    After a pass over a long table glibc would keep more than 100 MB of them. With other C libraries this does nothing.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def padded_widths(horizon: int) -> tuple[int, ...]:
    """The widths to which episodes are padded: 8, 20, 50, ... well below the horizon, and the horizon.

    >>> padded_widths(100)
    (8, 20, 50, 100)
    """
    ladder = (int(_SMALLEST_WIDTH * _WIDTH_GROWTH**k) for k in itertools.count())
    return (*itertools.takewhile(lambda width: 1.5 * width <= horizon, ladder), horizon)


def padded_width(lengths: Int[np.ndarray, "*n"], horizon: int) -> Int[np.ndarray, "*n"]:
    """The smallest width that holds each length."""
    ladder = np.asarray(padded_widths(horizon))
    return ladder[np.searchsorted(ladder, lengths)]


@dataclass(frozen=True, repr=False)
class Rectangle:
    """Episodes of one padded width W, with the arrays of a `Trajectory` in narrow types; `place` is the position of
    each episode in its chunk, and `unit` its owner."""

    place: Int[np.ndarray, " n"]
    unit: Int[np.ndarray, " n"]
    length: Int[np.ndarray, "n *E"]
    states: Shaped[np.ndarray, "n *E_W_D"]
    actions: Int[np.ndarray, "n *E_W"]
    rewards: Shaped[np.ndarray, "n *E_W"]
    next_states: Shaped[np.ndarray, "n *E_W_D"]
    propensities: Shaped[np.ndarray, "n *E_W"] | None = None
    extras: Shaped[np.ndarray, "n *E_W_2"] | None = None

    @property
    def width(self) -> int:
        return int(self.actions.shape[-1])

    @property
    def arrays(self) -> dict[str, Shaped[np.ndarray, "n ..."]]:
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in every.items() if array is not None}

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def take(self, rows: Index) -> "Rectangle":
        """Some of the episodes, by any index of an array."""
        return Rectangle(**{name: array[rows] for name, array in self.arrays.items()})

    def pad(self, size: int) -> "Rectangle":
        """Add empty episodes up to this size."""
        missing, vectors = size - len(self.place), self.states.ndim > self.actions.ndim
        shapes = {name: (missing, *array.shape[1:]) for name, array in self.arrays.items()}
        empty = Rectangle(**{name: np.zeros(shape, np.int8) for name, shape in shapes.items()})
        none = np.full(empty.states.shape, NOT_RECORDED, np.float32) if vectors else empty.states - np.int8(1)
        return concatenate([self, replace(empty, next_states=none)])


def concatenate(several: list[Rectangle]) -> Rectangle:
    """Rectangles of one width, one after another. If types differ, the result has the wider one, which holds both
    exactly."""
    return Rectangle(**concatenate_by_name([one.arrays for one in several]))


@dataclass(frozen=True, repr=False)
class Chunk:
    """`count` consecutive episodes, after the `first` ones. All episodes of a unit are in one chunk."""

    first: int
    count: int
    rectangles: tuple[Rectangle, ...]

    @property
    def nbytes(self) -> int:
        return sum(rectangle.nbytes for rectangle in self.rectangles)

    @classmethod
    def from_block(cls, block: Block, first: int, bounds: Bounds) -> "Chunk":
        """Cut a block into rectangles."""
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
            given = {name: block.columns[name] for name in ("propensities", "extras") if name in block.columns}
            more = {name: _narrow_floats(_padded(column, rows, taken, 0.0)) for name, column in given.items()}
            made.append(Rectangle(place, unit, length, *narrow, **more))
        return cls(first, len(block.lengths), tuple(made))

    def to_block(self) -> Block:
        """The episodes laid end to end again."""
        lengths, unit = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        for one in self.rectangles:
            lengths[one.place], unit[one.place] = one.length, one.unit
        starts, rows = np.cumsum(lengths) - lengths, int(lengths.sum())
        columns: dict[str, np.ndarray] = {}
        for one in self.rectangles:
            taken = np.arange(one.width) < one.length[:, None]
            at = (starts[one.place][:, None] + np.arange(one.width))[taken]
            for name in COLUMNS:
                values = getattr(one, name)
                if values is None:
                    continue
                wide = np.float64 if name in ("rewards", "propensities") or values.ndim > 2 else np.int32
                columns.setdefault(name, np.empty((rows, *values.shape[2:]), wide))[at] = values[taken]
        return Block(unit, lengths, **columns)

    def select_units(self, chosen: Bool[np.ndarray, " U"], number: Int[np.ndarray, " U"], first: int) -> "Chunk":
        """The episodes of the chosen units, renumbered by `number`."""
        keep = np.zeros(self.count, bool)
        for one in self.rectangles:
            keep[one.place] = chosen[one.unit]
        place, kept = np.cumsum(keep) - 1, []
        for one in self.rectangles:
            some = one.take(np.flatnonzero(keep[one.place]))
            kept.append(replace(some, place=place[some.place].astype(np.int32), unit=number[some.unit]))
        return Chunk(first, int(keep.sum()), tuple(one for one in kept if len(one.place)))


class EpisodeCache:
    """The episodes of a dataset, in memory up to `limit` bytes and otherwise in a scratch file.

    The file has no name and is readable only by its owner (mode 0600), in the folder for temporary files (`TMPDIR`). It
    disappears with the process. It holds episodes without ids.
    """

    def __init__(self, bounds: Bounds, limit: int = MAX_MEMORY_BYTES) -> None:
        self._bounds, self._limit = bounds, limit
        self._waiting: list[Block] = []
        self._chunks: list[Chunk | _Written] = []
        self._file: IO[bytes] | None = None
        self._first = self._bytes = 0

    def add(self, block: Block) -> None:
        """Add a block of whole episodes; all episodes of a unit must be in one block."""
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
            yield one if isinstance(one, Chunk) else self._read(*one)

    def _cut(self) -> None:
        """Turn the waiting blocks into a chunk."""
        if not self._waiting:
            return
        chunk = Chunk.from_block(Block.concatenate(self._waiting), self._first, self._bounds)
        self._first, self._waiting = self._first + chunk.count, []
        self._bytes += chunk.nbytes
        if self._file is None and self._bytes > self._limit:
            with redact_errors("The scratch file cannot be created", _NO_ROOM):
                self._file = tempfile.TemporaryFile(prefix="privrl-")  # noqa: SIM115 it lives as long as this object
            weakref.finalize(self, self._file.close)
            self._chunks = [self._written(one) if isinstance(one, Chunk) else one for one in self._chunks]
        self._chunks.append(chunk if self._file is None else self._written(chunk))

    def _written(self, chunk: Chunk) -> _Written:
        kept = (rectangle.arrays.items() for rectangle in chunk.rectangles)
        return chunk.first, chunk.count, [{name: self._put(array) for name, array in arrays} for arrays in kept]

    def _put(self, array: Shaped[np.ndarray, "..."]) -> _Place:
        assert self._file is not None
        with redact_errors("The scratch file cannot be written", _NO_ROOM):
            begin = self._file.seek(0, 2)
            self._file.write(np.ascontiguousarray(array).tobytes())
        return begin, array.dtype, array.shape

    def _read(self, first: int, count: int, places: list[dict[str, _Place]]) -> Chunk:
        kept = ({name: self._array(*place) for name, place in one.items()} for one in places)
        return Chunk(first, count, tuple(Rectangle(**arrays) for arrays in kept))

    def _array(self, begin: int, dtype: np.dtype, shape: tuple[int, ...]) -> Shaped[np.ndarray, "..."]:
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
    """Whole numbers from -1 to a public bound, or to the largest of them if the bound is not known, in a narrow
    type."""
    most = int(values.max(initial=0)) if bound is None else bound
    kind = next((kind for kind in _WHOLE_TYPES if most <= np.iinfo(kind).max), np.int64)
    return values.astype(kind)


def _narrow_floats(values: Shaped[np.ndarray, "*n"]) -> Shaped[np.ndarray, "*n"]:
    """Numbers in the narrowest type from which every value, including the sign of a zero, can be restored."""
    with np.errstate(invalid="ignore", over="ignore"):
        whole = values.astype(np.int8)
        if np.array_equal(whole, values) and not np.signbit(values[values == 0]).any():
            return whole
        single = values.astype(np.float32)
    return single if np.array_equal(single.astype(np.float64), values, equal_nan=True) else values
