"""Splitting people: whole people, by a secret and their id alone."""

import numpy as np
import pytest

import privrl
from privrl.data.tables.part import split

SECRET = bytes(range(32))


def episodes(units):
    n = len(units)
    states = np.arange(n)[:, None] % 3
    arrays = (states, np.zeros((n, 1), int), np.zeros((n, 1)))
    return privrl.data.Episodes.from_arrays(
        *arrays, units=units, horizon=1, num_states=3, num_actions=2, max_episodes_per_unit=3
    )


def ids(part):
    return {unit for piece in part.unit_ids() for unit in piece}


def test_everybody_is_in_one_group_with_all_their_episodes():
    data = episodes([f"p{i // 2}" for i in range(2000)])
    learn, held = split(data, 0.3, secret=SECRET)
    assert not ids(learn) & ids(held) and len(ids(learn)) + len(ids(held)) == 1000
    assert learn.num_episodes + held.num_episodes == 2000 and held.num_episodes == 2 * held.num_units
    assert abs(held.num_units / 1000 - 0.3) < 4.5 * np.sqrt(0.21 / 1000)


def test_nobody_moves_because_of_somebody_else():
    names = [f"p{i}" for i in range(300)]
    held = ids(split(episodes(names), secret=SECRET)[1])
    more = ids(split(episodes(["new", *reversed(names)]), secret=SECRET)[1])
    assert held <= more and len(more - held) <= 1


def test_a_new_secret_is_a_new_split():
    data = episodes([f"p{i}" for i in range(300)])
    assert ids(split(data)[1]) != ids(split(data)[1])


@pytest.mark.parametrize("settings", [{"share": 0.0}, {"share": 1.0}, {"secret": b"short"}])
def test_refusals(settings):
    with pytest.raises(ValueError, match="must lie in|at least 32"):
        split(episodes(["a", "b"]), **settings)
