"""The curator: the noise it adds has the distribution it declares, once per release, and it refuses before it looks."""

import math

import equinox as eqx
import jax
import numpy as np
import pytest

from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.accounting.ledger import OverspentError
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.people import AbstractPeople
from privrl.privacy.trust.privatizers import Central


class Vector(AbstractStatistic):
    shape: tuple = eqx.field(static=True, default=(2000,))
    symmetric: bool = eqx.field(static=True, default=False)

    def contribution(self, record, query):
        return record

    def l2(self, adjacency):
        return 3.0

    def l1(self, adjacency):
        return 7.0


class Matrix(Vector):
    shape: tuple = eqx.field(static=True, default=(60, 60))
    symmetric: bool = eqx.field(static=True, default=True)


class Crowd(AbstractPeople):
    """People whose exact sum is zero, and who notice when they are looked at."""

    num_units = 5
    records_per_unit = 1

    def __init__(self, records_per_unit=1):
        self.records_per_unit, self.looks, self.shares = records_per_unit, 0, []

    def total(self, statistic, included, arithmetic):
        self.looks += 1
        if included is not None:
            self.shares.append(included.draws(0, 20_000).mean())
        return arithmetic.zeros(statistic)

    def filled(self, statistic):
        return 2 * math.prod(statistic.shape)

    def part(self, chosen):
        raise AssertionError("nobody is split here")

    unit_draws = part


def ask(crowd, declared, source=None, mechanism="gaussian", **budget):
    private = Central(**(budget or {"rho": 0.5}), mechanism=mechanism)
    return Curator(crowd, private.calibrate(declared), source or Seeded(jax.random.key(0)), mechanism)


@pytest.mark.parametrize("source", ["seeded", "system"])
@pytest.mark.parametrize("records", [1, 3])
def test_the_noise_has_the_declared_distribution(source, records):
    curator = ask(Crowd(records), [Declared("x", Vector(), times=4)], System() if source == "system" else None)
    release = curator("x")
    scale = records * 3.0 / 0.5  # mu^2 = 2 rho / 4
    assert float(release.noise.std) == pytest.approx(scale)
    assert abs(np.std(release.value) / scale - 1) < 4.5 / np.sqrt(2 * 2000)  # 4.5 standard errors


def test_laplace_noise_uses_the_l1_sensitivity():
    release = ask(Crowd(), [Declared("x", Vector())], mechanism="laplace", epsilon=0.5)("x")
    assert float(release.noise.std) == pytest.approx(np.sqrt(2) * 7.0 / 0.5)
    assert abs(np.abs(release.value).mean() / 14.0 - 1) < 4.5 / np.sqrt(2000)


def test_symmetric_statistics_get_symmetric_noise():
    release = ask(Crowd(), [Declared("x", Matrix())])("x")
    value = np.asarray(release.value)
    np.testing.assert_array_equal(value, value.T)
    assert abs(np.linalg.norm(value) / 3.0 / np.sqrt(60 * 61 / 2) - 1) < 4.5 / np.sqrt(60 * 61)


def test_each_release_has_noise_of_its_own():
    curator = ask(Crowd(), [Declared("x", Vector(), times=2), Declared("y", Vector())])
    a, b, c = curator("x").value, curator("x").value, curator("y").value
    limit = 4.5 / np.sqrt(2000)
    assert all(abs(np.corrcoef(u, v)[0, 1]) < limit for u, v in ((a, b), (a, c), (b, c)))


def test_refuses_before_anybody_is_touched():
    crowd = Crowd()
    curator = ask(crowd, [Declared("x", Vector())])
    curator("x")
    for name in ("x", "undeclared"):
        with pytest.raises(OverspentError):
            curator(name)
    assert crowd.looks == 1


def test_sampling_draws_a_new_sample_for_every_release():
    crowd = Crowd()
    curator = ask(crowd, [Declared("x", Vector(), times=3, sampling=0.3)], epsilon=1.0, delta=1e-5)
    for _ in range(3):
        curator("x")
    assert len(set(crowd.shares)) == 3
    assert all(abs(share - 0.3) < 4.5 * np.sqrt(0.21 / 20_000) for share in crowd.shares)


def test_sampling_needs_one_record_per_person():
    with pytest.raises(ValueError, match="one record"):
        ask(Crowd(2), [Declared("x", Vector(), sampling=0.3)], epsilon=1.0, delta=1e-5)("x")


def test_an_open_declaration_needs_its_statistic():
    with pytest.raises(ValueError, match="without a statistic"):
        ask(Crowd(), [Declared("x")])("x")


def test_a_record_that_somebody_does_not_have_is_covered():
    """Terms of norm 5 that are never more than 1 apart: with several records each, one may be there or not."""

    class Far(Vector):
        def l2(self, adjacency):
            return 1.0 if adjacency == "replace-one" else 5.0

    for records, expected in ((1, 1.0), (3, 15.0)):
        curator = ask(Crowd(records), [Declared("far", Far())])
        curator("far")
        (noise,) = curator._ledger.releases()[0]["noise"]
        assert noise["sensitivity"] == expected
