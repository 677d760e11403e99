"""What a statistic claims holds, and a false claim fails: claims that a sensitivity rests on, and hints for sums.

All claims are False and all hints are empty unless a statistic says otherwise. The claim `distinct` is tested in
`test_distinct.py`; every bound, also of people with several stays (`per_person`), is searched in `test_search.py`.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_data, tiny_world
from statistic_cases import CASES, A, H, S, Searched

from privrl.audit.sensitivity import search_sensitivities
from privrl.audit.surface.queries import Query
from privrl.contracts.statistic import AbstractStatistic, SumHints
from privrl.mdp.types import Transitions
from privrl.privacy.noise.arithmetic import AbstractArithmetic, Floating
from privrl.privacy.noise.lattice import choose_lattice
from privrl.statistics.counts import TransitionCounts, VisitCounts
from privrl.statistics.gradients import BellmanGradient
from privrl.statistics.moments import Targets
from privrl.statistics.next_states import StartCounts
from privrl.studies.offline.summands import EpisodeSummands

DATA = tiny_data(tiny_world(horizon=H))


class Visits(AbstractStatistic):
    """A statistic that claims nothing: how often each state was visited, by one stay."""

    shape: tuple[int, ...] = (S,)
    symmetric: bool = False

    def contribution(self, record: Any, query: Any) -> jax.Array:
        return (jax.nn.one_hot(record.states, S) * record.valid[..., None]).sum(axis=-2)

    def l2(self, adjacency: str) -> float:
        return H * (np.sqrt(2.0) if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency: str) -> float:
        return H * (2.0 if adjacency == "replace-one" else 1.0)


def test_nothing_is_claimed_unless_a_statistic_says_so() -> None:
    one = Visits()
    assert (one.nonnegative, one.distinct, one.per_person) == (False, False, False)
    assert one.hints == SumHints()
    assert not (one.hints.any_width or one.hints.plain or one.hints.row_by_row or one.hints.ignores_next_state)
    assert one.hints.working_entries(1000) == 0


def smallest_product(one: Searched, statistic: AbstractStatistic) -> float:
    """The smallest inner product of two terms, as a share of the largest that the bounds allow."""
    asked = [Query("", statistic, published, q) for published in one.published for q in one.queries]
    terms = np.concatenate([np.asarray(step.answers(one.records(96))) for step in asked])
    return float((terms @ terms.T).min()) / statistic.l2("add-remove") ** 2


class NotNegative(BellmanGradient):
    """Gradients have signs, and it says that they do not."""

    @property
    def nonnegative(self) -> bool:
        return True


def test_a_false_claim_of_signs_is_found() -> None:
    """The same product decides about every true claim in `test_search.py`."""
    one = CASES[BellmanGradient][0]
    fields = {name: getattr(one.statistic, name) for name in ("values", "horizon", "norm", "discount", "terminal")}
    assert smallest_product(one, NotNegative(**fields)) < -1e-3
    honest = CASES[VisitCounts][0]
    assert smallest_product(honest, honest.statistic) >= 0


class OfStays(Visits):
    """The sum over a person's stays, with the bound of one stay, which it says is that of the person."""

    per_person: ClassVar[bool] = True

    def contribution(self, record: Any, query: Any) -> jax.Array:
        return jax.vmap(lambda stay: super(OfStays, self).contribution(stay, query))(record).sum(axis=0)


def test_a_false_claim_about_people_is_found() -> None:
    """People with two stays go beyond the bound of one."""
    lying = Searched(OfStays())
    found = search_sensitivities([Query("", lying.statistic, None, None)], lying.records(96), np.random.default_rng(0))
    assert any(one.broken for one in found)
    honest = Searched(Visits())
    found = search_sensitivities(
        [Query("", honest.statistic, None, None)], honest.records(96), np.random.default_rng(0)
    )
    assert not any(one.broken for one in found)


def arithmetics(statistic: AbstractStatistic) -> list[AbstractArithmetic]:
    norms = {"sensitivity": statistic.l2("replace-one"), "norm": statistic.l2("add-remove")}
    return [Floating(1.0, np.inf), choose_lattice(parameter=0.1, **norms, filled=10, kind="l2")]


def wrong_shortcuts(statistic: AbstractStatistic) -> list[str]:
    """The arithmetics whose own way to sum differs from the sum over batches, which uses no hint about rows."""
    summands, wrong = EpisodeSummands(DATA, statistic), []
    for arithmetic in arithmetics(statistic):
        shortcut, slow = (f(statistic, summands) for f in (arithmetic.sum_records, arithmetic.sum_batches))
        rounding = DATA.num_episodes if arithmetic.exact else 1e-9  # in units: at most one for each record
        if np.abs(np.asarray(shortcut, float) - np.asarray(slow, float)).max() > rounding:
            wrong.append(type(arithmetic).__name__)
    return wrong


def hinted() -> list[Any]:
    """Every setting with a hint about rows; two of them are quick."""
    found = [one.statistic for cases in CASES.values() for one in cases if one.statistic.hints.plain]
    quick = [next(one for one in found if type(one) is kind) for kind in (VisitCounts, StartCounts)]
    return [
        pytest.param(
            one, id=f"{type(one).__name__}-{i}", marks=() if any(one is q for q in quick) else pytest.mark.slow
        )
        for i, one in enumerate(found)
    ]


@pytest.mark.parametrize("statistic", hinted())
def test_shortcuts_give_the_sum_over_batches(statistic: AbstractStatistic) -> None:
    assert not wrong_shortcuts(statistic)


def test_every_hint_about_rows_comes_with_plain() -> None:
    """Rows are used only of statistics that are plain sums over them."""
    for cases in CASES.values():
        for one in cases:
            hints = one.statistic.hints
            assert hints.plain or not (hints.row_by_row or hints.ignores_next_state)


class HalfOfThem(VisitCounts):
    """Drops the rows of the first step, and says that nothing is dropped."""

    def rows(self, trajectory: Any) -> Transitions:
        rows = Transitions.from_trajectory(trajectory)
        return eqx.tree_at(lambda r: r.count, rows, rows.count * (rows.step > 0))


class AnyNextState(TransitionCounts):
    """Counts next states, and says that they do not matter."""

    @property
    def hints(self) -> SumHints:
        return SumHints(plain=True, row_by_row=True, ignores_next_state=True)


class NoRewards(Targets):
    """Rewards play a part, and it says that rows can be taken one by one."""

    @property
    def hints(self) -> SumHints:
        return SumHints(plain=True, row_by_row=True)


def test_a_false_hint_is_found() -> None:
    assert wrong_shortcuts(HalfOfThem(S, A, H)) == ["Floating", "Lattice"]


@pytest.mark.slow
def test_other_false_hints_are_found() -> None:
    assert wrong_shortcuts(AnyNextState(S, A, H)) == ["Lattice"]
    with_reward = next(one.statistic for one in CASES[Targets] if one.statistic.with_reward)
    names = ("features", "stage", "values", "low", "high", "with_reward")
    assert wrong_shortcuts(NoRewards(**{name: getattr(with_reward, name) for name in names})) == ["Lattice"]
    assert not wrong_shortcuts(with_reward)


class OfWidth(Visits):
    """Depends on how far a record is padded, and says that it does not."""

    def contribution(self, record: Any, query: Any) -> jax.Array:
        return super().contribution(record, query) / record.states.shape[-1]


def test_a_width_that_matters_is_found() -> None:
    """The check of `tests/test_sums.py`, for one statistic that is honest and one that is not."""
    record = jax.tree.map(lambda x: x[0], Searched(Visits()).records(1))
    record = eqx.tree_at(lambda r: (r.states, r.length), record, (jnp.zeros(H, int), jnp.asarray(1)))
    narrow = jax.tree.map(lambda x: x[:1] if jnp.ndim(x) else x, record)
    for kind, same in ((Visits, True), (OfWidth, False)):
        wide, cut = (kind().contribution(x, None) for x in (record, narrow))
        assert bool(jnp.array_equal(wide, cut)) is same
