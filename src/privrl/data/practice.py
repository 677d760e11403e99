"""Public probabilities of current practice, from a table with one row per state and action."""

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
from jaxtyping import Float

_COLUMNS = ("state", "action", "probability")


def read_practice(
    path: str | Path, num_states: int, num_actions: int, terminal: Collection[int] = ()
) -> Float[np.ndarray, "S A"]:
    """Read probabilities `[S, A]` from the columns `state`, `action` and `probability` of a Parquet or CSV file.

    A pair without a row has probability 0. The rows of every state must add up to 1. Only `terminal` states, in which
    no action is taken, may be left out; they get equal probabilities.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if a column is missing, an entry is out of range, or probabilities do not add up to 1.
    """
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    path = Path(path)
    readers: dict[str, Callable[[Path], pyarrow.Table]] = {
        ".parquet": pyarrow.parquet.read_table,
        ".csv": pyarrow.csv.read_csv,
    }
    if path.suffix not in readers:
        raise ValueError(f"`{path}` must end in .parquet or .csv. Give a table of state, action and probability.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no file `{path}`. Give the path of an existing table.")
    table = readers[path.suffix](path)
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise ValueError(f"`{path}` has no column {', '.join(missing)}; it needs {', '.join(_COLUMNS)}.")
    state, action, probability = (table[name].to_numpy() for name in _COLUMNS)
    for name, column, size in (("state", state, num_states), ("action", action, num_actions)):
        if column.dtype.kind not in "iu" or np.any((column < 0) | (column >= size)):
            raise ValueError(f"`{name}` in `{path}` must be whole numbers in [0, {size}).")
    if len(np.unique(state.astype(np.int64) * num_actions + action)) != len(state):
        raise ValueError(f"`{path}` has two rows for the same state and action. Keep one row per pair.")
    practice = np.zeros((num_states, num_actions))
    practice[state, action] = probability
    unlisted = np.setdiff1d(np.asarray(list(terminal), int), state)
    practice[unlisted] = 1.0 / num_actions
    wrong = np.flatnonzero(~(np.abs(practice.sum(axis=1) - 1.0) <= 1e-6) | ~(practice >= 0.0).all(axis=1))
    if len(wrong):
        raise ValueError(
            f"In `{path}`, {len(wrong)} states have probabilities that are negative, missing, or do not add up to 1; "
            f"the first is state {wrong[0]}. Correct them. Only `--terminal` states may be left out."
        )
    return practice
