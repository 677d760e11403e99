"""Episodes of real or simulated people, checked against public bounds before anything is summed."""

from typing import TYPE_CHECKING

from privrl.lazy import lazy_names

if TYPE_CHECKING:
    from privrl.data.dataset import AbstractDataset
    from privrl.data.episodes import Episodes
    from privrl.data.reward_function import RewardFunction
    from privrl.data.schema.table_schema import TableError
    from privrl.data.sources.observed_episodes import from_gymnasium, from_minari
    from privrl.data.tables.parquet import read_parquet
    from privrl.data.tables.part import split
    from privrl.data.tables.write import write_parquet
    from privrl.mdp.measurements import BinnedAction, Category, Feature

__all__ = [
    "AbstractDataset",
    "BinnedAction",
    "Category",
    "Episodes",
    "Feature",
    "RewardFunction",
    "TableError",
    "from_gymnasium",
    "from_minari",
    "read_parquet",
    "split",
    "write_parquet",
]

__getattr__, __dir__ = lazy_names(__name__)
