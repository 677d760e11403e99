"""Error rates, power and coverage of trials at a small size, and two wrong estimates that exceed them.

`python -m bench.pilots` measures the same with 20,000 trials a row.
"""

import dataclasses
import math

import jax
import numpy as np
import pytest
from bench.pilots import Cell, cells, check, page, pilot, simulate, tasks, wrong_estimates

import privrl
from privrl.learners.trials.protocol import Outcome, Partition
from privrl.learners.trials.trial import Trial
from privrl.studies.simulation.pilot_world import PilotWorld, characterise

TRIALS = 2_000
BY_SECTION = {cell.section: cell for cell in cells()}


def above(rate, trials=TRIALS):
    return rate + 4 * math.sqrt(rate * (1 - rate) / trials)


@pytest.fixture(scope="module")
def ramp():
    cell = next(cell for cell in cells() if cell.section == "ramp" and cell.drift)
    small = dataclasses.replace(cell, protocol=pilot(1_000, 1.0, looks=8, shares=(0.1, 0.25, 0.5, 0.5)))
    return small, simulate(small, TRIALS)


@pytest.mark.slow
def test_error_rates_and_coverage_hold_under_a_ramp_and_drift(ramp):
    _, found = ramp
    assert found["better"] <= above(0.025) and found["worse"] <= above(0.05) and found["agree"]
    assert found["covered"] >= 0.925 - 4 * math.sqrt(0.925 * 0.075 / TRIALS)


def test_pooled_means_and_numbers_received_are_wrong():
    found = wrong_estimates(4_000)
    assert found["pooled"] > 0.5  # under a ramp and drift, without an effect: .05 would be right
    assert found["received"] > 0.5 and found["assigned"] <= above(0.05, 4_000)


@pytest.mark.slow
def test_missing_records_that_depend_on_arm_and_outcome_do_not_bias_the_estimate(ramp):
    cell, _ = ramp
    unequal = next(cell for cell in cells() if cell.section == "missing").missing
    same = dataclasses.replace(cell, means=(0.6, 0.625), drift=0.0, missing=unequal)  # equal as they are counted
    found = simulate(same, TRIALS)
    assert found["better"] <= above(0.025) and found["worse"] <= above(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [BY_SECTION["power"], BY_SECTION["several policies"]], ids=lambda cell: cell.section)
def test_power_and_several_policies(cell):
    found = simulate(cell, TRIALS)
    if cell.expected is not None:
        assert found["better"] == pytest.approx(cell.expected, abs=0.03 + 4 * 0.5 / math.sqrt(TRIALS))
    assert found["agree"]


@pytest.mark.slow
def test_subgroups_and_secondary_outcomes_sum_up_to_the_outcome_that_decides():
    rich = dataclasses.replace(
        pilot(400, math.inf, looks=2),
        subgroups=(Partition("sex", ("f", "m"), 0.2), Partition("age", ("a", "b", "c"), 0.2)),
        secondary=(Outcome("days", 0, 30, 30, share=0.1),),
    )
    run = privrl.run(PilotWorld.binary(rich, (0.4, 0.8)), Trial(rich), rich.privatizer, episodes=400, seeds=3, key=0)
    state = jax.tree.map(np.asarray, run.policy)
    for name in ("outcome by sex", "outcome by age"):
        np.testing.assert_allclose(state.running[name].sum(axis=3), state.running["outcome"][:, :, :, 0], atol=1e-9)
    for name in ("sex", "age"):
        np.testing.assert_allclose(state.assigned[name].sum(axis=3), state.assigned["all"][:, :, :, 0])
    from privrl.learners.trials.looks import looks_of

    one = jax.tree.map(lambda x: x[0], run.policy)
    look = looks_of(Trial(rich), one)[-1]
    assert {c.group for c in look.subgroups} == {"sex: f", "sex: m", "age: a", "age: b", "age: c"}
    assert [c.outcome for c in look.secondary] == ["days"]
    assert look.secondary[0].estimate == pytest.approx(30 * look.comparisons[0].estimate, rel=1e-6)
    shares = characterise(rich, run.policy, (0.4,))
    assert sum(shares.serving) == pytest.approx(1)


@pytest.mark.slow
def test_strata_follow_the_plan_under_which_a_block_begins():
    """With a delay of one block, block t begins under plan t - 1: a policy closed at look l changes block l + 1."""
    protocol = pilot(400, math.inf, looks=4, arms=3)
    world = PilotWorld.binary(protocol, (0.6, 0.6, 0.1))
    run = privrl.run(world, Trial(protocol), protocol.privatizer, episodes=400, seeds=50, key=2, delay=1)
    state = jax.tree.map(np.asarray, run.policy)
    whole = (state.ended == 4) & (state.closed[:, 1] == 0) & (state.closed[:, 2] > 0)
    assert whole.sum() > 20
    began = np.maximum(np.arange(4) - 1, 0)
    expected = (state.closed[whole, 2, None] <= began[None]).astype(int)
    np.testing.assert_array_equal(state.stratum[whole], expected)
    later = state.assigned["all"][whole][:, :, 2, 0]
    assert (later[expected == 1] == 0).all() and (later[expected == 0] > 0).all()


def test_the_page_is_written_from_results():
    cell = Cell("error rates", pilot(400, 1.0), (0.5, 0.5))
    found = {"better": 0.02, "worse": 0.04, "people": 390.0, "covered": 0.93, "agree": True}
    used = {"world": "icu-sepsis", "seed": 0, "gain": 0.04, "adopted": 0.8, "stopped": 0.0, "people": 3000.0}
    text = page([("cells", [(cell, found)], 1.0), ("to use", used, 1.0)], 20_000, 25, "command")
    assert "| 400 | 1 | 0.5 | 0.0200 | 0.0400 | 0.9300 |" in text and "80%" in text and "Fails" not in text
    assert not dict(check([(cell, found | {"better": 0.03})], [], 20_000, 25))[
        'error rates of "better" at most 0.025 plus three standard errors'
    ]
    for rate in (0.016, 0.03):
        held = dict(check([], [used | {"world": "severity-108", "gain": -0.008, "adopted": rate}], 20_000, 25))
        assert held["severity-108: the whole advice is adopted in at most 0.025 of all pilots"] == (rate < 0.025)
    steep = next(cell for cell in cells() if cell.section == "ramp" and cell.expected is not None)
    for power in (0.606, 0.59):
        held = dict(check([(steep, found | {"better": power})], [], 20_000, 25))
        (within,) = [fine for what, fine in held.items() if what.startswith("power within .03")]
        assert within == (power > 0.6)
    assert len(tasks(10, 2, 5, "to use")) == 6
