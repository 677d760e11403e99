"""Parts of a dataset that belong to some of its people, and the split into people to learn from and to hold out."""

import os
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


def split(data: AbstractDataset, share: float = 0.3, *, secret: bytes | None = None) -> tuple[Part, Part]:
    """Split a dataset into the people to learn from and the people held out, each person with all their episodes.

    >>> import privrl
    >>> zeros, ones = [[0]] * 100, [[1.0]] * 100
    >>> data = privrl.data.Episodes.from_arrays(zeros, zeros, ones, horizon=1, num_states=1, num_actions=1)
    >>> learn, held_out = privrl.data.split(data, share=0.3)
    >>> learn.num_units + held_out.num_units
    100

    Arguments:
        data: the dataset of all people.
        share: the probability with which a person is held out.
        secret: at least 32 random bytes. With a person's id they decide the group, so the same bytes give the same
            groups. Keep them as secret as the table. By default, the operating system draws them.

    Raises:
        ValueError: if `share` is not in (0, 1), or `secret` is too short.

    **Formal guarantee.** A person's group depends only on the secret and their id: neither on any record nor on the
    other people in the dataset. Releases about one group reveal nothing about people of the other.
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"`share` is {share}; it must lie in (0, 1).")
    if secret is not None and len(secret) < 32:
        raise ValueError(f"`secret` has {len(secret)} bytes. Give at least 32 random bytes, or leave it out.")
    held = data.unit_draws(os.urandom(32) if secret is None else secret, "held out") < share
    return Part(data, ~held), Part(data, held)
