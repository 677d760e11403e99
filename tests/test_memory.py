"""Sizes are checked before memory is used, and large blocks are summed a few rows at a time."""

import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_data, tiny_world

import privrl
from privrl.mdp.features import OneHotFeatures
from privrl.privacy.noise.arithmetic import Floating
from privrl.privacy.noise.lattice import choose_lattice
from privrl.privacy.trust.channels import noise_of
from privrl.statistics.counts import VisitCounts
from privrl.statistics.moments import Gram
from privrl.studies import memory
from privrl.studies.offline import curated_records as people
from privrl.studies.offline import row_sums

BUDGET = privrl.Central(epsilon=1.0, delta=1e-6)
ENV = tiny_world(horizon=3)


def test_a_learner_that_cannot_fit_is_refused_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data, learner = tiny_data(ENV), privrl.PEVI(OneHotFeatures(3, 2), 3)
    monkeypatch.setattr(memory, "machine_memory", lambda: 6 * 8 * 6**2)
    privrl.fit(data, learner, BUDGET)
    monkeypatch.setattr(memory, "machine_memory", lambda: 6 * 8 * 6**2 - 1)
    monkeypatch.setattr(people.Records, "total", None)
    with pytest.raises(ValueError, match=r"`PEVI` needs about 0.0 GB of memory.* Nothing was read"):
        privrl.fit(data, learner, BUDGET)
    with pytest.raises(ValueError, match=r"`Evaluated` needs about"):
        privrl.fit(data, learner, BUDGET, evaluate=0.3)


def test_a_sum_whose_size_releases_decided_is_refused_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "machine_memory", lambda: 200)
    with pytest.raises(ValueError, match="This sum was not made"):
        memory.check_sum(VisitCounts(3, 2, 4, "pooled"))


def test_this_machine_has_memory_and_a_world_of_550_pairs_fits_in_it() -> None:
    assert memory.machine_memory() > 10**8
    learner = privrl.PEVI(OneHotFeatures(110, 5), 20)
    assert memory.COPIES * 8 * learner.largest_array < 10**8  # it once asked for 59 GB


def test_sums_a_few_rows_at_a_time_are_the_same_to_the_last_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny_data(ENV)
    records = people.Records(data)
    statistic = Gram(OneHotFeatures(3, 2), jnp.asarray(1))
    lattice = choose_lattice(parameter=1.0, sensitivity=2.0, norm=1.0, filled=4, kind="l2")
    whole = records.total(statistic, None, lattice)
    monkeypatch.setattr(row_sums, "LANES", 1)
    for entries in (1, 36, 72, 150):
        monkeypatch.setattr(row_sums, "WORKING", entries)
        np.testing.assert_array_equal(records.total(statistic, None, lattice), whole)
    noise, stage = noise_of(statistic, "gaussian", 1.0), jnp.asarray(1)
    counted = records.total(VisitCounts(3, 2, 3, "per-stage", stage=stage), None, Floating(1.0, np.inf))
    np.testing.assert_allclose(np.diag(lattice.value(noise, whole)).reshape(3, 2), np.asarray(counted), atol=1e-6)
