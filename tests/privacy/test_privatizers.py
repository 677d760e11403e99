"""Privatizers: budgets become noise scales, and pairings that cannot work are refused with what to use instead."""

import math

import equinox as eqx
import jax.numpy as jnp
import pytest

from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.accounting.composition import epsilon_of
from privrl.privacy.accounting.gdp import gdp_mu, zcdp_epsilon
from privrl.privacy.accounting.privacy_budget import BudgetError
from privrl.privacy.continual.toeplitz import SquareRoot
from privrl.privacy.trust.privatizers import Central, Local, NonPrivate, PairingError
from privrl.privacy.trust.published import Published


class Number(AbstractStatistic):
    shape: tuple = eqx.field(static=True, default=())
    symmetric: bool = eqx.field(static=True, default=False)

    def contribution(self, record, query):
        return jnp.clip(record, -1.0, 1.0)

    def l2(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return self.l2(adjacency)


RUNNING = Declared("sum", Number(), access="running", times=8)
BLOCKS = Declared("sum", Number(), access="blocks", times=8)
ROUNDS = Declared("sum", Number(), access="rounds", times=8)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    ("declared", "factor"), [(RUNNING, SquareRoot(8).factor), (BLOCKS, 1.0), (ROUNDS, math.sqrt(8))]
)
def test_scale_of_a_channel(declared, factor, adjacency):
    """Running sums cost the factor of their mechanism, blocks cost one release, rounds all eight."""
    private = Central(epsilon=1.0, delta=1e-5, adjacency=adjacency)
    channel = private.channel(declared, private.calibrate([declared]))
    sensitivity = 2.0 if adjacency == "replace-one" else 1.0
    assert float(channel.scale) == pytest.approx(factor * sensitivity / gdp_mu(1.0, 1e-5), rel=1e-9)


@pytest.mark.parametrize("declared", [RUNNING, BLOCKS], ids=["running", "blocks"])
def test_scale_of_a_local_message(declared):
    """Every message carries the noise of the whole budget, whatever the number of releases made from the sums."""
    private = Local(epsilon=1.0, delta=1e-5)
    channel = private.channel(declared, private.calibrate([declared]))
    assert float(channel.scale) == pytest.approx(2.0 / gdp_mu(1.0, 1e-5), rel=1e-9)


def test_groups_cost_their_maximum():
    shared = [Declared("a"), Declared("b")]
    apart = [Declared("a", group="left"), Declared("b", group="right")]
    private = Central(rho=1.0)
    assert private.calibrate(shared).parameter("a") == pytest.approx(1.0)
    assert private.calibrate(apart).parameter("a") == pytest.approx(math.sqrt(2.0))
    assert epsilon_of(private.calibrate(apart).events(), 1e-6) == pytest.approx(
        epsilon_of(private.calibrate(shared).events(), 1e-6)
    )


def test_no_noise_only_where_it_is_said():
    assert float(NonPrivate().channel(RUNNING, NonPrivate().calibrate([RUNNING])).scale) == 0.0
    infinite = Central(epsilon=math.inf)
    assert float(infinite.channel(RUNNING, infinite.calibrate([RUNNING])).scale) == 0.0
    assert math.isinf(epsilon_of(infinite.calibrate([RUNNING]).events(), 1e-6))


def test_local_refuses_to_revisit_and_says_what_to_use():
    with pytest.raises(PairingError, match=r"VAPVI.*already left.*`moment`.*Central"):
        Local(epsilon=1.0).check("VAPVI", [Declared("moment", Number(), access="rounds")])


def test_local_sends_vectors_with_and_without_delta():
    for private in (Local(epsilon=1.0), Local(epsilon=1.0, delta=1e-6)):
        private.check("Learner", [RUNNING])
        (event,) = private.calibrate([RUNNING]).events()
        assert event.mechanism in ("laplace", "randomised-response" if private.delta is None else "gaussian")


@pytest.mark.parametrize("private", [Central(rho=1.0), Local(rho=1.0), NonPrivate()], ids=["central", "local", "none"])
@pytest.mark.parametrize("part", [{"group": "left"}, {"sampling": 0.1}])
def test_a_channel_serves_everybody_or_nobody(private, part):
    """Certified as if a tenth of the people took part, while all of them do: refused under every trust."""
    declared = Declared("sum", Number(), access="running", times=3, **part)
    with pytest.raises(PairingError, match="some of the people"):
        private.channel(declared, private.calibrate([declared]))


@pytest.mark.parametrize("trust", ["central", "local"])
def test_published_noise_serves_no_choice(trust):
    """A noisy maximum is not Gaussian: at R/s = 1 and delta = .4, its epsilon is above that of mu = 1."""
    private = Published(lambda declared, _: {d.name: 1.0 for d in declared}, "x", epsilon=1.0, delta=0.4, trust=trust)
    choice = [Declared("choice", Number(), access="choice")]
    with pytest.raises(PairingError, match=r"releases a choice \(`choice`\)"):
        private.check("Picks", choice)
    with pytest.raises(BudgetError, match="accounted as 'gaussian'"):
        private.calibrate(choice)


@pytest.mark.parametrize("private", [Central(rho=1.0), Central(epsilon=math.inf), NonPrivate()])
@pytest.mark.parametrize("group", [None, "choose"])
def test_a_choice_is_alone_whoever_calibrates(private, group):
    choice = Declared("choice", access="choice", group="choose")
    with pytest.raises(BudgetError, match="a `group` of its own"):
        private.calibrate([choice, Declared("sum", group=group)])
    assert private.calibrate([choice, Declared("sum", group="others")]).groups == {"choose": 0.5, "others": 0.5}


def test_a_pure_budget_releases_running_sums_with_laplace_noise():
    private = Central(epsilon=1.0)
    private.check("Learner", [RUNNING])
    (event,) = private.calibrate([RUNNING]).events()
    assert event.mechanism == "laplace" and event.parameter == pytest.approx(1.0)
    for continual in ("square-root", "honaker"):
        with pytest.raises(ValueError, match="with laplace noise it must be one of 'best', 'intervals'"):
            Central(epsilon=1.0, continual=continual)
    with pytest.raises(ValueError, match="with gaussian noise"):
        Central(epsilon=1.0, delta=1e-6, continual="intervals")


def test_what_needs_gaussian_noise_is_refused_before_anything_is_released():
    declared = [Declared("first"), Declared("second", gaussian=True)]
    with pytest.raises(PairingError, match="`second` of `X` is released with Gaussian noise.*Nothing was released"):
        Central(epsilon=1.0, mechanism="laplace").check("X", declared)
    Central(epsilon=1.0, delta=1e-6).check("X", declared)


def test_gaussian_is_never_pure():
    with pytest.raises(BudgetError, match="pure privacy, which Gaussian noise cannot provide"):
        Central(epsilon=1.0, mechanism="gaussian").calibrate([ROUNDS])


def test_published_noise_shows_claim_and_truth():
    paper = Published(lambda declared, budget: {"sum": budget.rho}, "a paper", rho=0.5)
    book = paper.calibrate([ROUNDS])
    assert sum(e.parameter**2 * e.times for e in book.events()) == pytest.approx(8 * 0.25)
    assert paper.claimed["epsilon"] == pytest.approx(zcdp_epsilon(0.5, 1e-6))
    with pytest.raises(PairingError, match="other"):
        paper.check("Learner", [Declared("other")])


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": 0.0, "delta": 1e-6},
        {"epsilon": -1.0, "delta": 1e-6},
        {"epsilon": math.nan, "delta": 1e-6},
        {"epsilon": 1.0, "delta": 1.5},
        {"epsilon": 1.0, "rho": 1.0},
        {"rho": 0.0},
        {},
    ],
)
def test_bad_budgets_are_refused_at_once(arguments):
    with pytest.raises(BudgetError):
        Central(**arguments)
    with pytest.raises(BudgetError):
        Local(**arguments)


@pytest.mark.parametrize("arguments", [{"mechanism": "cauchy"}, {"continual": "none"}, {"adjacency": "both"}])
def test_unknown_words_are_refused(arguments):
    wrong = object.__new__(Central)  # past the type checks of the test run, which would refuse the word first
    for name, value in (vars(Central(rho=1.0)) | arguments).items():
        object.__setattr__(wrong, name, value)
    with pytest.raises(ValueError, match="must be one of"):
        wrong.__post_init__()
