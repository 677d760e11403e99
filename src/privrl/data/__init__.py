"""Episodes of real or sampled people, checked against public bounds before anything is summed."""

from privrl.data._dataset import AbstractDataset as AbstractDataset
from privrl.data._dataset import Summary as Summary
from privrl.data._episodes import Episodes as Episodes
from privrl.data._minari import from_minari as from_minari
from privrl.data._parquet import ParquetEpisodes as ParquetEpisodes
from privrl.data._parquet import read_parquet as read_parquet
from privrl.data._part import Part as Part
from privrl.data._reward_function import RewardFunction as RewardFunction
from privrl.data._schema import Bounds as Bounds
from privrl.data._schema import Schema as Schema
from privrl.data._schema import TableError as TableError
from privrl.data._write import write_parquet as write_parquet
