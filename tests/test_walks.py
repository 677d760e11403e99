"""`docs/evidence/walks.md` lists the files that one person's row passes through: real calls say the same."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contract import tiny_world
from walks import Walk, walk_of

import privrl
from privrl.data import read_parquet
from privrl.mdp.types import Trajectory
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies.simulation.simulated_loop import SimulationKeys

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "walks.md"
ENV = tiny_world(horizon=3)
BLOCK = 2
LEARNER = privrl.UCBVI(ENV.rewards, 3, first_block=BLOCK, bonus=0.01)
USUAL, LIVE, REPORTED = (
    Trajectory(jnp.array(states), jnp.full(3, action), jnp.zeros(3), jnp.array(after), jnp.array(3))
    for states, action, after in (([0, 1, 0], 0, [1, 0, 1]), ([1, 1, 1], 1, [1, 1, 1]), ([0, 0, 1], 1, [0, 1, 0]))
)
"""Everybody's record; and one in whose light an agent, and a server, plan otherwise."""


def listed(title: str) -> str:
    """What the section about walks says under a title."""
    section = PAGE.read_text().split("\n## Walks\n")[1].split("\n## ")[0]
    return section.split(f"\n### {title}\n")[1].split("\n### ")[0].split("\n\n", 1)[1].strip()


def check(title: str, walk: Walk) -> None:
    assert listed(title) == walk.written()
    assert len(walk.files) <= 15


def test_a_row_goes_from_parquet_to_a_policy_without_a_step_back(tmp_path, monkeypatch):
    """One reward differs; `privrl.fit` and `Result.save`."""
    people = 8
    for world, reward in enumerate((0.123456789, 0.987654321)):
        (tmp_path / str(world)).mkdir()
        columns = {
            "unit": [unit for unit in range(people) for _ in range(2)],
            "step": [0, 1] * people,
            "state": [0, 1] * people,
            "action": [unit % 2 for unit in range(people) for _ in range(2)],
            "reward": [reward, *([0.5] * (2 * people - 1))],
            "next_state": [1, 0] * people,
        }
        path = tmp_path / str(world) / "stays.parquet"
        pq.write_table(pa.table(columns), path, compression="none")
        os.utime(path, (0, 0))  # when a file was written is no part of the row

    def act(world: int) -> None:
        monkeypatch.chdir(tmp_path / str(world))
        data = read_parquet("stays.parquet", **{name: name for name in columns}, horizon=2, seed=0)
        private = privrl.Central(epsilon=1e4, delta=1e-5)
        privrl.fit(data, privrl.APVI(2, 2, 2), private, key=jax.random.key(0)).save("saved")

    walk = walk_of(act, monkeypatch)
    check("Offline", walk)
    assert not walk.steps_back
    assert walk.files[-1] == "studies/results/binding.py"


@pytest.mark.slow
def test_the_walk_of_a_simulated_person(monkeypatch):
    """Somebody else takes part in the place of everybody of the last block; `privrl.run`."""
    person = SimulationKeys.person

    def act(world: int) -> privrl.Run:
        with monkeypatch.context() as patch:
            patch.setattr(SimulationKeys, "person", lambda *at: jax.random.fold_in(person(*at), world))
            private = privrl.Central(epsilon=1e3, delta=1e-5)
            return privrl.run(ENV, LEARNER, private, episodes=BLOCK, key=jax.random.key(0), flow=False)

    walk = walk_of(act, monkeypatch)
    check("Simulation", walk)
    assert walk.functions[-1] == ("studies/simulation/run.py", "run")


@pytest.mark.slow
def test_the_walk_of_a_record_that_an_agent_is_given(monkeypatch):
    """The record of the last person of a block differs; `Agent`, until its result."""

    def act(world: int) -> privrl.Result:
        with ReleaseStore.in_memory() as store:
            settings = {"num_users": BLOCK, "store": store, "fixed_order": True, "key": jax.random.key(0)}
            agent = privrl.Agent(LEARNER, privrl.Central(epsilon=1e3, delta=1e-5), **settings)
            for user in range(BLOCK):
                agent.end_episode(agent.begin_episode(user), LIVE if world and user else USUAL)
            return agent.result()

    walk = walk_of(act, monkeypatch)
    check("Agent", walk)
    assert walk.files[-1] == "studies/results/binding.py"


@pytest.mark.slow
def test_the_walk_of_a_record_from_a_device_to_the_plan_of_the_next(monkeypatch):
    """The record of the first person differs; `Client` and `Server`, until the next person is sent a plan."""
    local = privrl.Local(epsilon=20.0)

    def act(world: int) -> object:
        settings = {"num_users": 2 * BLOCK, "key": jax.random.key(0), "clock": lambda: 0.0}
        server = privrl.Server(LEARNER, local, **settings)
        for user in range(BLOCK):
            client = privrl.Client(LEARNER, local, key=jax.random.key(user))
            report = client.report(USUAL if user or not world else REPORTED, server.broadcast())
            server.absorb(report.to_bytes())
        return server.broadcast()

    walk = walk_of(act, monkeypatch)
    check("Client and server", walk)
    assert walk.functions[-1] == ("studies/local/server.py", "Server.broadcast")
