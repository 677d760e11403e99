"""How seeds are cut into compiled programs: 32 on a CPU, all in one on an accelerator whose memory suffices."""

import logging
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world

import privrl
from privrl.executors.executor import InProcess
from privrl.recipes.all_recipes import get
from privrl.studies.loop import State
from privrl.studies.simulation import seed_programs
from privrl.studies.simulation import simulating as run_module

ENV = tiny_world(horizon=1)
PRIVATE = privrl.Central(epsilon=10.0, delta=1e-5)


class Device:
    """Stands for the device: it counts the programs that are started, and can pretend to be an accelerator.

    Its programs are not compiled. The regret of a seed is a number that its key decides.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[int] = []
        self._patch = monkeypatch
        monkeypatch.setattr(run_module, "simulate_seeds", self._simulate)

    def pretend(self, memory: int) -> None:
        self._patch.setattr(jax, "default_backend", lambda: "gpu")
        self._patch.setattr(seed_programs, "device_memory", lambda: memory)

    def _simulate(self, env: Any, learner: Any, channels: Any, ends: Any, *how: Any) -> Any:
        keys = jax.random.key_data(how[-1])
        self.started.append(len(keys))
        regret = jnp.broadcast_to(keys[:, :1].astype(float), (len(keys), len(ends)))
        return None, regret, {name: jnp.full(len(keys), len(ends)) for name in channels}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def simulated(seeds: int, **settings: Any) -> np.ndarray:
    learner = get("dp-ucbvi").build(ENV)
    return privrl.run(ENV, learner, PRIVATE, episodes=2, seeds=seeds, key=jax.random.key(0), **settings).total_regret


def test_an_accelerator_runs_all_seeds_in_one_program(device: Device) -> None:
    device.pretend(memory=10**9)
    assert len(np.unique(simulated(4_096))) == 4_096
    assert device.started == [4_096]


@pytest.mark.slow
def test_4096_seeds_are_one_launch_of_one_compiled_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the real program, whose launches are counted."""
    launches, compiled = [], run_module.simulate_seeds
    monkeypatch.setattr(run_module, "simulate_seeds", lambda *args: launches.append(args) or compiled(*args))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert simulated(4_096).shape == (4_096,)
    assert len(launches) == 1


def test_a_second_run_traces_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing took a fifth of the time of a run on an accelerator."""
    learner, traced = get("dp-lsvi-ucb++").build(ENV), []
    plan = type(learner).plan
    monkeypatch.setattr(type(learner), "plan", lambda *args, **how: traced.append(1) or plan(*args, **how))
    for key in (1, 2):
        before = len(traced)
        privrl.run(ENV, learner, PRIVATE, episodes=2, seeds=2, key=jax.random.key(key))
        assert (len(traced) > before) == (key == 1)


def test_a_cpu_runs_32_seeds_in_a_program(device: Device) -> None:
    alone = simulated(64)
    assert device.started == [32, 32]
    np.testing.assert_array_equal(alone, simulated(64, executor=InProcess()))
    assert device.started == [32] * 4


@pytest.mark.parametrize("accelerator", [False, True])
def test_seeds_per_program_overrides_the_default(device: Device, accelerator: bool) -> None:
    if accelerator:
        device.pretend(memory=10**9)
    simulated(6, seeds_per_program=4)
    assert device.started == [3, 3]
    simulated(64, seeds_per_program=64)
    assert device.started == [3, 3, 64]
    with pytest.raises(ValueError, match="`seeds_per_program` is 0; it must be at least 1"):
        simulated(6, seeds_per_program=0)


def test_memory_that_does_not_suffice_cuts_seeds_and_the_log_explains_it(
    device: Device, caplog: pytest.LogCaptureFixture
) -> None:
    """By public sizes alone, and in the same way if an executor simulates."""
    learner = get("dp-ucbvi").build(ENV)
    channels = run_module.Study.online(learner, PRIVATE, 2).channels()
    sizes = {"people": 0, "blocks": len(learner.schedule(2)), "kept_plans": 0}
    each = seed_programs.bytes_per_seed(learner, channels, **sizes)
    device.pretend(memory=12 * each)
    with caplog.at_level(logging.WARNING):
        simulated(12)
        assert device.started == [12] and not caplog.records
        alone = simulated(13)
    assert device.started == [12, 7, 6]
    (line,) = caplog.messages
    assert f"13 seeds need about 0.0 GB ({each:,} bytes per seed" in line
    assert "in 2 programs of at most 12. Set `seeds_per_program`" in line
    np.testing.assert_array_equal(alone, simulated(13, executor=InProcess()))
    assert device.started[3:] == [7, 6]
    device.pretend(memory=0)
    simulated(2)
    assert device.started[5:] == [1, 1]


def test_a_seed_needs_a_few_copies_of_what_it_carries() -> None:
    learner = get("dp-ucbvi").build(ENV)
    channels = run_module.Study.online(learner, PRIVATE, 2).channels()
    sizes = {"people": 0, "blocks": 0, "kept_plans": 0}
    carried = sum(leaf.nbytes for leaf in jax.tree.leaves(State.first(learner, channels)))
    each = seed_programs.bytes_per_seed(learner, channels, **sizes)
    assert each == 6 * carried
    term = 8 * sum(math.prod(channel.statistic.raw_shape) for channel in channels.values())
    assert seed_programs.bytes_per_seed(learner, channels, **sizes | {"people": 3}) == each + 6 * 3 * term
    assert seed_programs.bytes_per_seed(learner, channels, **sizes | {"blocks": 5}) == each + 8 * 5
    assert seed_programs.bytes_per_seed(learner, channels, **sizes | {"kept_plans": 2}) == 3 * each
