import math

import numpy as np
import pytest

from privrl.privacy.accounting.privacy_budget import Budget, BudgetError


def test_the_three_kinds() -> None:
    approximate = Budget.of(epsilon=1.0, delta=1e-6)
    assert (approximate.kind, approximate.epsilon, approximate.delta, approximate.rho) == (
        "approximate",
        1.0,
        1e-6,
        None,
    )
    for pure in (Budget.of(epsilon=2), Budget.of(epsilon=2, delta=0), Budget.of(epsilon=2.0, delta=0.0)):
        assert (pure.kind, pure.epsilon, pure.delta, pure.rho) == ("pure", 2.0, 0.0, None)
    concentrated = Budget.of(rho=0.1)
    assert (concentrated.kind, concentrated.epsilon, concentrated.delta, concentrated.rho) == (
        "concentrated",
        None,
        1e-6,
        0.1,
    )
    assert Budget.of(rho=0.1, delta=1e-9).delta == 1e-9


def test_numbers_of_other_libraries_become_floats() -> None:
    budget = Budget.of(epsilon=np.float32(0.5), delta=np.array(1e-3))
    assert type(budget.epsilon) is float
    assert budget.epsilon == 0.5
    assert type(budget.delta) is float
    assert budget.delta == 1e-3


def test_in_words() -> None:
    assert str(Budget.of(epsilon=1.0, delta=1e-6)) == "epsilon = 1, delta = 1e-06 (approximate differential privacy)"
    assert str(Budget.of(epsilon=0.5)) == "epsilon = 0.5 (pure differential privacy)"
    assert str(Budget.of(rho=0.1, delta=1e-5)) == (
        "rho = 0.1 (zero-concentrated differential privacy; epsilon is reported at delta = 1e-05)"
    )


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, -math.inf, "1", True, np.array([1.0])])
def test_epsilon_and_rho_must_be_finite_and_positive(bad: object) -> None:
    with pytest.raises(BudgetError, match=r"`epsilon` is .*above 0"):
        Budget.of(epsilon=bad, delta=1e-6)
    with pytest.raises(BudgetError, match=r"`epsilon` is .*above 0"):
        Budget.of(epsilon=bad)
    with pytest.raises(BudgetError, match=r"`rho` is .*above 0"):
        Budget.of(rho=bad)


@pytest.mark.parametrize("bad", [-1e-9, 1.0, 2.0, math.nan, math.inf, "small", False])
def test_delta_must_lie_between_zero_and_one(bad: object) -> None:
    with pytest.raises(BudgetError, match=r"`delta` is .*between 0 and 1"):
        Budget.of(epsilon=1.0, delta=bad)
    with pytest.raises(BudgetError, match=r"`delta` is .*between 0 and 1"):
        Budget.of(rho=1.0, delta=bad)


def test_a_reporting_delta_may_not_be_zero() -> None:
    with pytest.raises(BudgetError, match="`delta` is 0"):
        Budget.of(rho=1.0, delta=0)


def test_one_currency_exactly() -> None:
    with pytest.raises(BudgetError, match=r"Both `epsilon` = 1\.0 and `rho` = 0\.5"):
        Budget.of(epsilon=1.0, delta=1e-6, rho=0.5)
    with pytest.raises(BudgetError, match="Neither `epsilon` nor `rho`"):
        Budget.of()
    with pytest.raises(BudgetError, match="Neither `epsilon` nor `rho`"):
        Budget.of(delta=1e-6)
    assert issubclass(BudgetError, ValueError)
