"""What a record's floats are, in the very batches in which they are summed: for workers of any kind."""

import hashlib
from typing import Any

import jax
import numpy as np

from privrl.data.tables.shards import Shard
from privrl.studies.offline import batched_sums as sums
from privrl.studies.offline.summands import EpisodeSummands


def record_floats(shard: Shard, statistic: Any) -> list[bytes]:
    """A digest of the blocks of every record that are not zero, and of their places: of all bits of them."""
    form = EpisodeSummands(shard.data, statistic)._form
    program = jax.jit(jax.vmap(lambda record: statistic.parts(record, None)))
    found = []
    for batch, width in sums._batches(statistic, shard.data.chunks(), form, None):
        taking_part, wide = sums._wide(batch, width, statistic.per_person)
        slots, blocks = map(np.asarray, program(wide))
        for place in np.flatnonzero(taking_part):
            there = (blocks[place].reshape(len(slots[place]), -1) != 0).any(axis=1)
            content = slots[place][there].tobytes() + blocks[place][there].tobytes()
            found.append(hashlib.sha256(content).digest())
    return found
