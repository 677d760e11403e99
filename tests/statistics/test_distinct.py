"""A statistic that says that no two blocks of a record share a place keeps its word, whatever the record says."""

from typing import Any

import jax
import numpy as np
import pytest
from tests.statistic_cases import CASES, SIZES, Searched

from privrl.privacy.noise.lattice import choose_lattice
from privrl.statistics.counts import VisitCounts


def shared_place(one: Searched, statistic: Any) -> bool:
    """Whether a record has two blocks in one place that are not zero."""
    slots, blocks = jax.jit(jax.vmap(lambda record: statistic.parts(record, None)))(one.records())
    there = (np.asarray(blocks).reshape(*slots.shape, -1) != 0).any(axis=-1)
    return any(len(np.unique(row[used])) < used.sum() for row, used in zip(np.asarray(slots), there, strict=True))


CLAIMS = [one for cases in CASES.values() for one in cases if one.statistic.distinct]
QUICK = {"Differences", "BellmanGradient", "TransitionCounts"}


def cases() -> list[Any]:
    seen: set[str] = set()
    made = []
    for one in CLAIMS:
        name = type(one.statistic).__name__
        marks = () if name in QUICK - seen else pytest.mark.slow
        seen.add(name)
        made.append(pytest.param(one, id=f"{name}-{len(made)}", marks=marks))
    return made


@pytest.mark.parametrize("one", cases())
def test_no_two_blocks_share_a_place(one: Searched) -> None:
    assert not shared_place(one, one.statistic)


class Lying(VisitCounts):
    """Visits of one cell add up, and it says that they do not."""

    @property
    def distinct(self) -> bool:
        return True


def test_a_false_claim_is_found_and_would_cost_privacy() -> None:
    """Three visits of one cell have norm 3; taken as three blocks of one place they would pass a bound of sqrt 3."""
    one = CASES[VisitCounts][1]
    assert one.statistic.counting == "pooled" and not one.statistic.distinct
    lying, honest = (kind(*SIZES, "pooled") for kind in (Lying, VisitCounts))
    assert shared_place(one, lying)
    record = jax.tree.map(np.zeros_like, jax.tree.map(lambda x: x[0], one.records(1)))
    record.length[...] = SIZES[2]
    grid = choose_lattice(parameter=1.0, sensitivity=2.0, norm=1.75, filled=10, kind="l2")
    assert np.abs(grid.round_record(honest, record, None)).max() * grid.granularity < 1.76
    assert np.abs(grid.round_record(lying, record, None)).max() * grid.granularity == 3.0
