"""`docs/evidence/walks.md` lists the files that one person's row passes through: real calls must agree with it.

`python tests/test_walks.py` writes the lists and their numbers anew; `python tests/test_walks.py HTTP` writes one walk.
"""

import contextlib
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clocks import Clock
from contract import tiny_world
from service.serving import CENTRAL, serving, study_file
from walks import Walk, walk_of

import privrl
from privrl.mdp.types import Trajectory
from privrl.privacy.store.release_store import ReleaseStore
from privrl.service.writer import Writer
from privrl.studies.simulation.simulated_loop import SimulationKeys

DOCS = Path(__file__).parents[1] / "docs"
PAGE, DESIGN = DOCS / "evidence" / "walks.md", DOCS / "design.md"
ENV = tiny_world(horizon=3)
BLOCK = 2
LEARNER = privrl.UCBVI(ENV.rewards, 3, first_block=BLOCK, bonus=0.01)
USUAL, LIVE, REPORTED = (
    Trajectory(jnp.array(states), jnp.full(3, action), jnp.zeros(3), jnp.array(after), jnp.array(3))
    for states, action, after in (([0, 1, 0], 0, [1, 0, 1]), ([1, 1, 1], 1, [1, 1, 1]), ([0, 0, 1], 1, [0, 1, 0]))
)
"""The record of every person, one that changes the plan of an agent, and one that changes the plan of a server."""

Act = Callable[[int], object]


def fit_table(folder: Path, patch: pytest.MonkeyPatch, evaluate: float | None = None) -> Act:
    """The reward of one row differs; `privrl.fit` with exact noise and the recipe of the README, then `Result.save`."""
    people = 20
    for world, reward in enumerate((0.123456789, 0.987654321)):
        (folder / str(world)).mkdir()
        columns = {
            "unit": [unit for unit in range(people) for _ in range(2)],
            "step": [0, 1] * people,
            "state": [0, 1] * people,
            "action": [unit % 2 for unit in range(people) for _ in range(2)],
            "reward": [0.0, reward, *([0.0, 0.5] * (people - 1))],
            "next_state": [1, 2] * people,
        }
        path = folder / str(world) / "stays.parquet"
        pq.write_table(pa.table(columns), path, compression="none")
        os.utime(path, (0, 0))  # the time of writing is not part of the row
    schema = {name: name for name in columns} | {"horizon": 2, "num_states": 3, "num_actions": 2}
    schema |= {"rewards_at_end": True, "terminal": [2]}
    number = itertools.count(100)

    def act(world: int) -> None:
        patch.chdir(folder / str(world))
        result = privrl.fit("stays.parquet", "auto", schema=schema, epsilon=1e4, delta=1e-5, evaluate=evaluate)
        result.save(f"saved {next(number)}")

    return act


def serve_episode(folder: Path, patch: pytest.MonkeyPatch) -> Act:
    """The first person's episode differs; it is posted, its block closes, and the next plan is read.

    The writer works in the thread of the event loop, so that calls have one order.
    """

    def start(writer: Writer) -> None:
        writer._backend.open()
        writer.state = "ready"

    def serve(writer: Writer) -> None:
        writer._ending = True  # ends after the batch
        writer._serve([])
        writer._ending = False

    patch.setattr(Writer, "start", start)
    patch.setattr(Writer, "_wake", serve)
    number = itertools.count(100)

    def act(world: int) -> object:
        clock = Clock()
        file = study_file(folder / str(next(number)), CENTRAL, recipe="dp-lsvi-ucb", users=3, epsilon=1000.0)
        with serving(file, clock) as service:
            ticket = service.ask("POST", "tickets", {"user": "first"}).json["ticket"]
            steps = [{"state": 2 * world, "action": world, "reward": world}] * 4
            assert service.ask("POST", "episodes", {"ticket": ticket, "steps": steps}).status < 300
            clock.time = 2_000.0  # beyond the patience: the block closes before the next person arrives
            assert service.ask("POST", "tickets", {"user": "second"}).json["plan"] == 1
            return service.ask("GET", "plan").body

    return act


def simulate(folder: Path, patch: pytest.MonkeyPatch) -> Act:
    """The random draws of the people of the last block differ; `privrl.run`."""
    person = SimulationKeys.person

    def act(world: int) -> privrl.Run:
        with patch.context() as inner:
            inner.setattr(SimulationKeys, "person", lambda *at: jax.random.fold_in(person(*at), world))
            private = privrl.Central(epsilon=1e3, delta=1e-5)
            return privrl.run(ENV, LEARNER, private, episodes=BLOCK, key=jax.random.key(0), flow=False)

    return act


def drive_agent(folder: Path, patch: pytest.MonkeyPatch) -> Act:
    """The record of the last person of a block differs; `Agent`, until its result."""

    def act(world: int) -> privrl.Result:
        with ReleaseStore.in_memory() as store:
            private = privrl.Central(epsilon=1e3, delta=1e-5)
            agent = privrl.Agent(LEARNER, private, num_users=BLOCK, store=store, fixed_order=True)
            for user in range(BLOCK):
                agent.end_episode(agent.begin_episode(user), LIVE if world and user else USUAL)
            return agent.result()

    return act


def report_locally(folder: Path, patch: pytest.MonkeyPatch) -> Act:
    """The record of the first person differs; `Client` and `Server`, until the next person is sent a plan."""
    local = privrl.Local(epsilon=20.0)

    def act(world: int) -> object:
        with contextlib.ExitStack() as stack:
            own = [stack.enter_context(ReleaseStore.in_memory()) for _ in range(BLOCK + 1)]
            server = privrl.Server(LEARNER, local, num_users=2 * BLOCK, clock=lambda: 0.0, store=own[BLOCK])
            for user in range(BLOCK):
                client = privrl.Client(LEARNER, local, store=own[user])
                report = client.report(USUAL if user or not world else REPORTED, server.broadcast())
                server.absorb(report.to_bytes())
            return server.broadcast()

    return act


WALKS: dict[str, Callable[[Path, pytest.MonkeyPatch], Act]] = {
    "Table": fit_table,
    "Table with an evaluation": partial(fit_table, evaluate=0.3),
    "HTTP": serve_episode,
    "Agent": drive_agent,
    "Client and server": report_locally,
    "Simulation": simulate,
}
LAST = {
    "Table": "studies/results/binding.py",
    "Table with an evaluation": "studies/results/binding.py",
    "HTTP": "mdp/simulation.py",  # the table from which the service draws actions
    "Agent": "studies/results/binding.py",
    "Client and server": "studies/local/server.py",
    "Simulation": "studies/simulation/simulating.py",
}
"""A file near the end of each walk: a walk without it has lost the row."""


IN_DESIGN = {"Table": "for a table and the recipe `auto`", "HTTP": "for an episode over HTTP"}
"""The walks whose numbers `docs/design.md` states."""


def numbers(walk: Walk) -> str:
    return f"{len(walk.files)} | {len(walk.steps_back)}"


def statement(title: str, walk: Walk) -> str:
    return f"{len(walk.files)} files with {len(walk.steps_back)} steps back {IN_DESIGN[title]}"


def follow(title: str) -> Walk:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        return walk_of(WALKS[title](Path(folder), patch), patch)


@pytest.mark.slow
@pytest.mark.parametrize("title", WALKS)
def test_the_page_lists_the_walk(title: str) -> None:
    """If this fails after a change of structure, run `python tests/test_walks.py`."""
    page, walk = PAGE.read_text(), follow(title)
    section = page.split(f"\n### {title}\n")[1].split("\n### ")[0]
    assert section.split("\n\n", 1)[1].strip() == walk.to_markdown()
    assert f"| {title} | {numbers(walk)} |\n" in page
    assert LAST[title] in walk.files[-8:]
    if title in IN_DESIGN:
        assert statement(title, walk) in DESIGN.read_text().replace("\n", " ")


def write_page(titles: Sequence[str]) -> None:
    """Write the lists and numbers of some walks anew."""
    for title in titles:
        walk = follow(title)
        head, rest = PAGE.read_text().split(f"\n### {title}\n")
        section, *others = rest.split("\n### ")
        text = section.split("\n\n", 1)[0] + "\n\n" + walk.to_markdown() + "\n"
        page = f"\n### {title}\n".join([head, "\n### ".join([text, *others])])
        PAGE.write_text(re.sub(rf"(?m)^\| {title} \| .*\|$", f"| {title} | {numbers(walk)} |", page))
        if title in IN_DESIGN:
            pattern = rf"\d+ files with \d+ steps(\s)back {IN_DESIGN[title]}"
            new = statement(title, walk).replace("steps back", r"steps\g<1>back")
            DESIGN.write_text(re.sub(pattern, new, DESIGN.read_text()))


if __name__ == "__main__":
    write_page(sys.argv[1:] or list(WALKS))
