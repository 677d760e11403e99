"""How many seeds of a simulation one compiled program simulates.

The number of seeds that are compiled together may change the last bits of a result. The rule therefore reads public
numbers alone, and never who simulates: an executor gets the programs that this process would run itself.

    CPU           32 seeds per program
    accelerator   all seeds in one program; fewer if that program would not fit into the memory of the device

An accelerator starts several programs for every block of people, and starting them costs more than the work of a few
seeds.
"""

import logging
import math
from collections.abc import Mapping

import jax

from privrl.contracts.learner import AbstractOnlineLearner
from privrl.privacy.trust.channels import AbstractChannel
from privrl.studies.loop import State
from privrl.studies.memory import BYTES, COPIES, device_memory

_CPU_SEEDS = 32  # seeds per program on a CPU
_log = logging.getLogger(__name__)


def default_seeds_per_program(
    seeds: int,
    settings: int,
    learner: AbstractOnlineLearner,
    channels: Mapping[str, AbstractChannel],
    *,
    people: int,
    blocks: int,
    kept_plans: int,
) -> int:
    """The number of seeds in one program, by the rule above. A line in the log explains every cut on an accelerator.

    Arguments:
        seeds: the number of seeds of every setting.
        settings: the number of settings that are compiled together.
        learner, channels: those of one setting; all settings have the same shapes.
        people, blocks, kept_plans: as for `bytes_per_seed`.
    """
    if jax.default_backend() == "cpu":
        return _CPU_SEEDS
    one = bytes_per_seed(learner, channels, people=people, blocks=blocks, kept_plans=kept_plans)
    each, available = settings * one, device_memory()
    if seeds * each <= available:
        return seeds
    most = max(1, available // each)
    _log.warning(
        f"{seeds:,} seeds need about {seeds * each / 1e9:,.1f} GB ({each:,} bytes per seed, estimated from public "
        f"sizes), and the device has {available / 1e9:,.1f} GB. The seeds are simulated in "
        f"{math.ceil(seeds / most):,} programs of at most {most:,}. Set `seeds_per_program` to choose another number."
    )
    return most


def bytes_per_seed(
    learner: AbstractOnlineLearner,
    channels: Mapping[str, AbstractChannel],
    *,
    people: int,
    blocks: int,
    kept_plans: int,
) -> int:
    """About how much memory one seed needs, from public sizes alone.

    Arguments:
        learner, channels: their state is carried from block to block: sums, releases and the learner's memory.
        people: the number of people whose terms are made together; 0 if a block is one flow.
        blocks: the number of blocks; the regret of each is kept.
        kept_plans: the number of older plans that are kept, if plans lag behind.

    Returns:
        a few copies of the state, of the kept plans and of the terms, and the regret.
    """
    form = jax.eval_shape(lambda: State.first(learner, channels))
    state = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(form))
    terms = BYTES * people * sum(math.prod(channel.statistic.raw_shape) for channel in channels.values())
    return COPIES * ((1 + kept_plans) * state + terms) + BYTES * blocks
