"""Write episodes as a table, for simulated data and to test a pipeline before it sees real people."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, Shaped

from privrl.data.dataset import AbstractDataset
from privrl.data.rows.transitions import COLUMNS, Block
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import TableError
from privrl.mdp.measurements import ENDED, Category, Feature, Measurement, check_measurements
from privrl.mdp.reported_columns import GROUP, OUTCOME, ReportedColumns
from privrl.mdp.types import Trajectory
from privrl.writing import whole_file

if TYPE_CHECKING:
    import pyarrow as pa

_ONE_TYPE = "Give all ids as whole numbers, or all ids as text."


def write_parquet(
    path: str | Path,
    data: Trajectory | Iterable[Trajectory] | AbstractDataset,
    units: Sequence[object] | Shaped[np.ndarray, " N"] | None = None,
    *,
    features: Sequence[Measurement] = (),
    by: Category | None = None,
    outcome: Feature | None = None,
    rows_per_group: int = 65_536,
) -> int:
    """Write one row per step and return the number of rows. The file is written as a whole or not at all.

    The columns are `unit_id`, `episode_id`, `step`, `state`, `action`, `reward`, `next_state` (null if unknown) and
    `terminated` (true on the last row of an episode that ended before the horizon). If states are vectors, each of the
    `features` has a column in place of `state` and `next_state`, null if a value is missing, and `terminated` is true
    if the episode has ended. Episodes are numbered; so are units, unless `units` names them.

    The columns of `extras` have the names of `by` and `outcome`.

    Arguments:
        path: the new file.
        data: a batch of trajectories `[N, H]`, an iterable of such batches, or a dataset (then the episodes that it
            uses, with units numbered anew).
        units: the owner of each episode; only for a single batch of trajectories.
        features: the entries of a vector, for trajectories; a dataset declares them itself.
        by, outcome: the columns of `extras`, for trajectories; a dataset declares them itself.
        rows_per_group: rows of a row group.

    Raises:
        TableError: if there is nothing to write, or `units` mixes types.
        ValueError: if `units` or `features` do not fit the data.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    features = data.features if isinstance(data, AbstractDataset) else check_measurements(features) if features else ()
    reported = data.reported if isinstance(data, AbstractDataset) else ReportedColumns(by, outcome)
    num_rows = num_episodes = 0
    with whole_file(path, secret=True) as temporary:
        writer = None
        for block, horizon, names in _blocks(data, units):
            columns = _columns(block, horizon, names, num_episodes, features)
            columns |= _reported(block, reported, set(columns), {feature.name for feature in features})
            with redact_errors("`units` cannot be written", _ONE_TYPE):
                table = pa.table(columns)
            writer = writer or pq.ParquetWriter(temporary, table.schema)
            writer.write_table(table, row_group_size=rows_per_group)
            num_rows, num_episodes = num_rows + table.num_rows, num_episodes + len(block.lengths)
        if writer is None:
            raise TableError("There is nothing to write. Give at least one batch of trajectories.")
        writer.close()
    return num_rows


def _blocks(
    data: Trajectory | Iterable[Trajectory] | AbstractDataset,
    units: Sequence[object] | Shaped[np.ndarray, " N"] | None,
) -> Iterator[tuple[Block, int, "pa.Array | None"]]:
    """Blocks with the horizon and, if units have names, the name of each unit number."""
    if units is not None and not isinstance(data, Trajectory):
        raise ValueError("`units` names the owners of a single batch of trajectories. Leave it out for other data.")
    if isinstance(data, AbstractDataset):
        for block in data.blocks():
            yield block, data.horizon, None
    elif isinstance(data, Trajectory) and units is not None:
        if len(units) != len(data.length):
            raise ValueError(
                f"`units` names {len(units)} owners for {len(data.length)} episodes. Give one owner per episode."
            )
        names, owner = _numbered(units)
        yield _laid_out(data, owner), data.rewards.shape[-1], names
    else:
        before = 0
        for batch in [data] if isinstance(data, Trajectory) else data:
            block = _laid_out(batch, before + np.arange(len(batch.length)))
            before += len(batch.length)
            yield block, batch.rewards.shape[-1], None


def _numbered(
    units: Sequence[object] | Shaped[np.ndarray, " N"],
) -> tuple["pa.Array", Int[np.ndarray, " N"]]:
    """The distinct ids in order, and the number of each unit's id among them.

    NumPy is not used, because it would turn whole numbers into text, or round them, if another unit is text or a
    fraction.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    with redact_errors("`units` cannot be written", _ONE_TYPE):
        ids = pa.array(units if isinstance(units, Sequence) else np.asarray(units))
        names = ids.unique().take(pc.sort_indices(ids.unique()))
        owner = pc.index_in(ids, value_set=names).to_numpy()
    if ids.null_count or not (pa.types.is_integer(ids.type) or pa.types.is_string(ids.type)):
        raise TableError(f"`units` holds values that are neither whole numbers nor text. {_ONE_TYPE}")
    return names, owner


def _laid_out(batch: Trajectory, owner: Shaped[np.ndarray, " N"]) -> Block:
    """The episodes end to end, with those of a unit adjacent; padding episodes of length 0 are dropped."""
    length = np.asarray(batch.length)
    order = np.argsort(owner, kind="stable")
    order = order[length[order] > 0]
    valid = np.arange(batch.rewards.shape[-1]) < length[order, None]
    grids = {name: getattr(batch, name) for name in COLUMNS}
    columns = {name: np.asarray(grid)[order][valid] for name, grid in grids.items() if grid is not None}
    return Block(owner[order], length[order], **columns)


def _columns(
    block: Block, horizon: int, names: "pa.Array | None", first_episode: int, features: Sequence[Measurement]
) -> dict[str, object]:
    import pyarrow as pa

    unit = np.repeat(block.unit, block.lengths)
    episode = np.repeat(np.arange(first_episode, first_episode + len(block.lengths)), block.lengths)
    last = np.repeat(block.lengths, block.lengths) - 1 == block.steps
    who = {"unit_id": unit if names is None else names.take(pa.array(unit)), "episode_id": episode, "step": block.steps}
    did = {"action": block.actions, "reward": block.rewards}
    if block.propensities is not None:
        did["propensity"] = block.propensities
    if block.states.ndim > 1:
        ended = last & (block.next_states == ENDED).all(axis=1)
        return who | _measured(block.states, features, {*who, *did}) | did | {"terminated": ended}
    short = last & (np.repeat(block.lengths, block.lengths) < horizon)
    after = pa.array(block.next_states, mask=block.next_states < 0)
    return who | {"state": block.states} | did | {"next_state": after, "terminated": short}


def _reported(block: Block, reported: ReportedColumns, taken: set[str], features: set[str]) -> dict[str, object]:
    """The column of groups, null for none, and the second outcome. One that is a measurement is there already."""
    import pyarrow as pa

    if block.extras is None:
        return {}
    columns: dict[str, object] = {}
    if reported.by is not None:
        group = block.extras[:, GROUP]
        at = pa.array(np.nan_to_num(group).astype(np.int32), mask=np.isnan(group))
        columns[reported.by.name] = pa.array(reported.by.values, pa.string()).take(at)
    if reported.outcome is not None:
        columns[reported.outcome.name] = block.extras[:, OUTCOME]
    columns = {name: column for name, column in columns.items() if name not in features}
    if both := sorted(columns.keys() & taken):
        raise ValueError(f"`{both[0]}` has the name of another column of the table. Rename it.")
    return columns


def _measured(states: Shaped[np.ndarray, "R D"], features: Sequence[Measurement], taken: set[str]) -> dict[str, object]:
    """A column for each entry of the vectors: numbers, or the texts of a category."""
    import pyarrow as pa

    if len(features) != states.shape[1]:
        raise ValueError(
            f"`features` declares {len(features)} columns for vectors of {states.shape[1]} entries. Give one per entry."
        )
    columns: dict[str, object] = {}
    for feature, values in zip(features, states.T, strict=True):
        if feature.name in taken | {"terminated"}:
            raise ValueError(f"The feature `{feature.name}` has the name of another column of the table. Rename it.")
        if isinstance(feature, Feature):
            columns[feature.name] = pa.array(values, mask=np.isnan(values))
        else:
            positions = pa.array(np.nan_to_num(values).astype(np.int32), mask=np.isnan(values))
            columns[feature.name] = pa.array(feature.values, pa.string()).take(positions)
    return columns
