"""Episodes of real or sampled people, checked against public bounds before anything is summed."""

from privrl.data.dataset import AbstractDataset
from privrl.data.episodes import Episodes
from privrl.data.gymnasium import from_gymnasium
from privrl.data.minari import from_minari
from privrl.data.parquet import read_parquet
from privrl.data.reward_function import RewardFunction
from privrl.data.schema import TableError
from privrl.data.split import split
from privrl.data.write import write_parquet
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
