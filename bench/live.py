"""`python -m bench.live [ADDRESS]`: processor time of a live study, in microseconds a person, with the store on disk.

Central: `end_episodes` of 256 people at once and one by one, `act`, and a new ticket. Local: reports absorbed 256 at
once and one by one, a ticket, and how long a server takes to start in a new process after 2,000 and after 100,000
reports, programs compiled before. With an address (in which `STUDY` is replaced, such as
`postgresql:///bench?options=-csearch_path%3DSTUDY`) the store is there.
"""

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import privrl
from privrl.privacy.store.release_store import ReleaseStore
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem
from privrl.studies.local.wire import Message

WORLD = privrl.envs.RiverSwim(states=5)
BATCH = 256


def each(number: int, work: Callable[[], object], repeats: int = 1) -> float:
    """The best processor time of `repeats` calls, in microseconds for each of `number` people."""
    spent = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return 1e6 * min(spent) / number


def central(name: str, store: ReleaseStore) -> dict[str, float]:
    """An agent of a recipe; people arrive before they end."""
    learner = get(name).learner(Problem.of(WORLD))
    private = privrl.Central(epsilon=1.0, delta=1e-6)
    agent = privrl.Agent(learner, private, num_users=8_192, store=store, patience=3_600.0)
    keys = jax.random.split(jax.random.key(0), BATCH)
    people = jax.tree.map(np.asarray, jax.vmap(WORLD.rollout, in_axes=(None, 0))(agent.policy, keys))
    records = [jax.tree.map(lambda x: x[i], people) for i in range(BATCH)]  # noqa: B023
    tickets = iter([agent.begin_episode(i) for i in range(8 * BATCH)])
    for size in (1, BATCH):  # compiled
        agent.end_episodes(zip(itertools.islice(tickets, size), records, strict=False))
    one, last = itertools.islice(tickets, 30), agent.begin_episode(0)
    newcomers = itertools.count(100_000)
    return {
        "end_episodes(256)": each(
            BATCH, lambda: agent.end_episodes(zip(itertools.islice(tickets, BATCH), records, strict=False)), 5
        ),
        "end_episode": each(30, lambda: [agent.end_episode(ticket, records[0]) for ticket in one]),
        "act": each(1_000, lambda: [agent.act(last, i % 5, i % WORLD.horizon) for i in range(1_000)], 3),
        "begin_episodes(256)": each(BATCH, lambda: agent.begin_episodes(itertools.islice(newcomers, BATCH)), 3),
        "begin_episode": each(50, lambda: [agent.begin_episode(next(newcomers)) for _ in range(50)], 3),
    }


def local(store: ReleaseStore) -> dict[str, float]:
    """A server of counts whose reports are answers at random: what they say makes no difference to the time."""
    server = serve(store)
    (reports,) = server._reports.values()
    rng = np.random.default_rng(0)

    def sent(number: int) -> list[bytes]:
        parts = (np.sort(rng.choice(reports.largest, reports.shape[0], replace=False)) for _ in range(number))
        return [Message(server.ticket(), (part,)).to_bytes() for part in parts]

    for size in (1, BATCH):  # compiled
        server.absorb_all(sent(size))
    found = {}
    batches = iter([sent(BATCH) for _ in range(5)])
    found["absorb_all(256)"] = each(BATCH, lambda: server.absorb_all(next(batches)), 5)
    single = sent(50)
    found["absorb"] = each(50, lambda: [server.absorb(message) for message in single])
    found["ticket"] = each(2_000, lambda: [server.ticket() for _ in range(2_000)], 3)
    for people in (2_000, 100_000):
        while server.num_reports < people:
            server.absorb_all(sent(min(4 * BATCH, people - server.num_reports)))
        again = [sys.executable, "-m", "bench.live", "--restart", store.path]
        seconds = [float(subprocess.run(again, check=True, capture_output=True, text=True).stdout) for _ in range(3)]
        found[f"seconds to start after {people:,} reports"] = min(seconds[1:])
    return found


def restart(place: str) -> None:
    """Prints how long a server takes to start, after everything is imported."""
    began = time.process_time()
    with ReleaseStore(place) as store:
        serve(store).ticket()
    print(time.process_time() - began)


def serve(store: ReleaseStore) -> privrl.Server:
    """A local study of counts."""
    learner = get("ldp-ucbvi").learner(Problem.of(WORLD))
    return privrl.Server(learner, privrl.Local(epsilon=1.0), num_users=200_000, store=store, key=jax.random.key(0))


def main() -> None:
    if sys.argv[1:2] == ["--restart"]:
        restart(sys.argv[2])
        return
    for kind in ("dp-lsvi-ucb", "dp-ucbvi", "local"):
        with tempfile.TemporaryDirectory() as folder:
            place = sys.argv[1].replace("STUDY", kind.replace("-", "_")) if sys.argv[1:] else Path(folder) / "bench.db"
            with ReleaseStore(place) as store:
                found = local(store) if kind == "local" else central(kind, store)
        for what, value in found.items():
            print(f"{kind:12} {what:45} {value:10.3g}")


if __name__ == "__main__":
    main()
