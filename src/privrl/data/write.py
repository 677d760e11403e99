"""Writing episodes as a table, for sampled data and for tests of a pipeline before real people are in it."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from privrl.data.dataset import AbstractDataset
from privrl.data.guard import guarded
from privrl.data.schema import TableError
from privrl.data.transitions import Block
from privrl.mdp.types import Trajectory

_ONE_TYPE = "Give all ids as whole numbers, or all as text."


def write_parquet(
    path: str | Path,
    data: Trajectory | Iterable[Trajectory] | AbstractDataset,
    units: Sequence[Any] | Shaped[np.ndarray, " N"] | None = None,
    *,
    rows_per_group: int = 65_536,
) -> int:
    """Writes one row per step and returns the number of rows. The file appears whole or not at all.

    The columns are `unit_id`, `episode_id`, `step`, `state`, `action`, `reward`, `next_state` (null where unknown) and
    `terminated` (true on the last row of an episode that ended before the horizon). Episodes are numbered; so are
    units, unless `units` names them.

    Arguments:
        data: a batch of trajectories `[N, H]`, several such batches one after another, or a dataset (then the
            episodes that it uses, with its units numbered anew).
        units: whose episode it is, one per episode; for a single batch of trajectories only.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    num_rows = num_episodes = 0
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    try:
        writer = None
        for block, horizon, names in _blocks(data, units):
            columns = _columns(block, horizon, names, num_episodes)
            with guarded("`units` cannot be written", _ONE_TYPE):
                table = pa.table(columns)
            writer = writer or pq.ParquetWriter(temporary, table.schema)
            writer.write_table(table, row_group_size=rows_per_group)
            num_rows, num_episodes = num_rows + table.num_rows, num_episodes + len(block.lengths)
        if writer is None:
            raise TableError("There is nothing to write. Give at least one batch of trajectories.")
        writer.close()
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return num_rows


def _blocks(
    data: Trajectory | Iterable[Trajectory] | AbstractDataset,
    units: Sequence[Any] | Shaped[np.ndarray, " N"] | None,
) -> Iterator[tuple[Block, int, np.ndarray | None]]:
    """Blocks with the horizon and, where units have names, the name of each unit number."""
    if units is not None and not isinstance(data, Trajectory):
        raise ValueError("`units` can name the owners of a single batch of trajectories only. Leave it out.")
    if isinstance(data, AbstractDataset):
        for block in data.blocks():
            yield block, data.horizon, None
    elif isinstance(data, Trajectory) and units is not None:
        if len(units) != len(data.length):
            raise ValueError(f"`units` names {len(units)} owners; there are {len(data.length)} episodes.")
        with guarded("`units` cannot be sorted", _ONE_TYPE):
            names, owner = np.unique(np.asarray(units), return_inverse=True)
        yield _laid_out(data, owner), data.rewards.shape[-1], names
    else:
        before = 0
        for batch in [data] if isinstance(data, Trajectory) else data:
            block = _laid_out(batch, before + np.arange(len(batch.length)))
            before += len(batch.length)
            yield block, batch.rewards.shape[-1], None


def _laid_out(batch: Trajectory, owner: Shaped[np.ndarray, " N"]) -> Block:
    """The episodes end to end, those of a unit next to each other; padding episodes of length 0 are dropped."""
    length = np.asarray(batch.length)
    order = np.argsort(owner, kind="stable")
    order = order[length[order] > 0]
    valid = np.arange(batch.rewards.shape[-1]) < length[order, None]
    grids = (batch.states, batch.actions, batch.rewards, batch.next_states)
    columns = (np.asarray(grid)[order][valid] for grid in grids)
    return Block(owner[order], length[order], *columns)


def _columns(block: Block, horizon: int, names: np.ndarray | None, first_episode: int) -> dict[str, Any]:
    import pyarrow as pa

    unit = np.repeat(block.unit, block.lengths)
    episode = np.repeat(np.arange(first_episode, first_episode + len(block.lengths)), block.lengths)
    last = np.repeat(block.lengths, block.lengths) - 1 == block.steps
    return {
        "unit_id": unit if names is None else names[unit],
        "episode_id": episode,
        "step": block.steps,
        "state": block.states,
        "action": block.actions,
        "reward": block.rewards,
        "next_state": pa.array(block.next_states, mask=block.next_states < 0),
        "terminated": last & (np.repeat(block.lengths, block.lengths) < horizon),
    }
