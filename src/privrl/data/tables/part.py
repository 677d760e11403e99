"""The part of a dataset that belongs to some of its people, for statistics of disjoint groups."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import final

import numpy as np
from jaxtyping import Bool, Int

from privrl.data.dataset import AbstractDataset, Summary
from privrl.data.rows.episode_cache import Chunk
from privrl.data.rows.transitions import Block
from privrl.data.schema.table_schema import Bounds


@final
@dataclass(frozen=True, eq=False)
class Part(AbstractDataset):
    """The episodes of the units marked by `chosen`, indexed by their numbers in `whole`; here they are renumbered 0, 1,
    ... in the same order.

    **Formal guarantee.** A unit is in a part with all its episodes or with none, so parts with complementary marks have
    no person in common.
    """

    whole: AbstractDataset
    chosen: Bool[np.ndarray, " U"] = field(repr=False)

    @property
    def bounds(self) -> Bounds:  # type: ignore[override]
        return self.whole.bounds

    def check(self) -> Summary:
        return self._summary

    @cached_property
    def _summary(self) -> Summary:
        whole = self.whole.check()
        if len(self.chosen) != whole.num_units:
            raise ValueError(
                f"`chosen` has {len(self.chosen)} marks for {whole.num_units} units. Give one mark per unit."
            )
        episodes = sum(len(block.lengths) for block in self.blocks())
        left_out = whole.num_left_out + whole.num_episodes - episodes
        return Summary(int(self.chosen.sum()), episodes, left_out, whole.num_rows)

    def blocks(self) -> Iterator[Block]:
        number = np.cumsum(self.chosen) - 1
        for block in self.whole.blocks():
            keep = self.chosen[block.unit]
            kept = block.take(keep, np.repeat(keep, block.lengths))
            yield replace(kept, unit=number[kept.unit])

    def chunks(self) -> Iterator[Chunk]:
        number, first = np.cumsum(self.chosen) - 1, 0
        for chunk in self.whole.chunks():
            some = chunk.select_units(self.chosen, number, first)
            first += some.count
            if some.count:
                yield some

    def unit_ids(self) -> Iterator[list[bytes]]:
        first = 0
        for ids in self.whole.unit_ids():
            yield list(compress(ids, self.chosen[first : first + len(ids)]))
            first += len(ids)

    def encode_episodes(self) -> Iterator[tuple[Int[np.ndarray, " E"], list[bytes]]]:
        number = np.cumsum(self.chosen) - 1
        for unit, messages in self.whole.encode_episodes():
            keep = self.chosen[unit]
            yield number[unit[keep]], list(compress(messages, keep))

    def with_sizes(self, num_states: int | None, num_actions: int) -> "Part":
        return replace(self, whole=self.whole.with_sizes(num_states, num_actions))
