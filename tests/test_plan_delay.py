"""Plans that are computed meanwhile: nobody waits before the public moment at which they take effect."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from clocks import Clock

import privrl
from privrl.studies.live import live_plans

PATIENCE = 10.0


def live(store: privrl.ReleaseStore, clock: Clock, **given: Any) -> privrl.Agent:
    study = {"world": "riverswim", "epsilon": 1, "delta": 1e-6, "num_users": 200, "patience": PATIENCE, "key": 3}
    return privrl.Agent("dp-ucbvi", store=store, clock=clock, **(study | {"plan_delay": 1} | given))


def fill(agent: privrl.Agent, block: int) -> list[int]:
    """All people of a block arrive; their plans."""
    ends = [0, *agent._arrivals._ends]
    return [ticket.plan for ticket in agent.begin_episodes(range(ends[block], ends[block + 1]))]


def test_a_plan_takes_effect_one_block_later_and_arrivals_wait_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, inner = threading.Event(), live_plans._complete

    def slow(compute: Callable[[], Any]) -> Any:
        assert ready.wait(60.0)
        return inner(compute)

    monkeypatch.setattr(live_plans, "_complete", slow)
    with privrl.ReleaseStore(tmp_path / "study.db") as store:
        clock = Clock()
        agent = live(store, clock)
        assert set(fill(agent, 0)) == {0}
        clock.time += PATIENCE
        assert set(fill(agent, 1)) == {0} and agent.plans.closed == 1  # its plan is not ready, and nobody waits
        clock.time += PATIENCE
        threading.Timer(0.3, ready.set).start()
        began = time.monotonic()
        assert set(fill(agent, 2)) == {1}  # the public moment: arrivals wait for it
        assert time.monotonic() - began > 0.25 and agent.plans.closed == 2


def test_plans_are_the_same_with_and_without_a_crash(tmp_path: Path) -> None:
    """What takes effect when depends on arrivals and the clock alone; plans follow from releases."""
    clock, seen = Clock(), []
    with privrl.ReleaseStore(tmp_path / "study.db") as store:
        agent = live(store, clock)
        for block in range(3):
            seen.append(fill(agent, block))
            clock.time += PATIENCE
        closed = agent.plans.closed
        before = [np.asarray(agent.plans[number].policy.probabilities) for number in range(agent.plans.current + 1)]
    with privrl.ReleaseStore(tmp_path / "study.db") as store:
        again = live(store, clock)
        assert (again.plans.closed, again.plans.current) == (closed, closed - 1) == (3, 2)
        after = [np.asarray(again.plans[number].policy.probabilities) for number in range(again.plans.current + 1)]
        assert [again.begin_episode(0).plan, fill(again, 3)[0]] == [0, 2]
    np.testing.assert_array_equal(before, after)
    assert [set(plans) for plans in seen] == [{0}, {0}, {1}]


def test_it_is_declared_and_belongs_to_people_who_come_and_go(tmp_path: Path) -> None:
    with privrl.ReleaseStore(tmp_path / "study.db") as store:
        live(store, Clock())
        with pytest.raises(ValueError, match="differs in"):
            live(store, Clock(), plan_delay=0)
        for wrong in ({"plan_delay": 2}, {"patience": None, "fixed_order": True}):
            with pytest.raises(ValueError, match=r"`plan_delay` is \d. Expected 0, or 1 with `patience`"):
                live(store, Clock(), **wrong)


@pytest.mark.parametrize("recipe", ["dp-ucbvi", pytest.param("dp-lsvi-ucb", marks=pytest.mark.slow)])
def test_plans_are_compiled_once(monkeypatch: pytest.MonkeyPatch, recipe: str) -> None:
    """A weak type, such as that of a Python number, would compile the program again while people wait."""
    forms, inner = [], live_plans._compiled_plan

    def noted(*given: Any) -> Any:
        leaves, form = jax.tree.flatten(given)
        forms.append((form, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves if hasattr(leaf, "dtype")]))
        return inner(*given)

    monkeypatch.setattr(live_plans, "_compiled_plan", noted)
    study = {"world": "riverswim", "epsilon": 1, "delta": 1e-6, "num_users": 60, "patience": PATIENCE}
    with privrl.ReleaseStore.in_memory() as store:
        clock = Clock()
        agent = privrl.Agent(recipe, store=store, clock=clock, **study)
        for block in range(2):
            fill(agent, block)
            clock.time += PATIENCE
        assert agent.plans.closed == 2
    assert len(forms) == 3 and all(form == forms[0] for form in forms)
