"""Several agents on one store: each catches up with the others, everybody counts once, nothing is released twice."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from test_agent import LEARNER, USERS, counted, live, some, terms

import privrl


def digests(agent):
    """A hash of every plan so far."""
    assert agent.policy is not None  # catches up
    plans = [np.asarray(agent._plans[n].policy.probabilities) for n in range(agent._plans.closed + 1)]
    return [hashlib.sha256(plan.tobytes()).hexdigest() for plan in plans]


def check(path, seen_by_others):
    """What must be true when everybody has ended, whoever did it."""
    blocks = len(LEARNER.blocks(USERS))
    with privrl.ReleaseStore(path) as store:
        agent = live(store)
        np.testing.assert_array_equal(counted(store, agent), terms([some(i) for i in range(USERS)]))
        shown = store.describe()
        assert sorted(r["name"] for r in shown["releases"]) == sorted(f"transitions/{t}" for t in range(blocks))
        assert {r["status"] for r in shown["releases"]} == {"released"}
        assert shown["spent"] == {"releases of transitions": float(blocks)}
        mine = digests(agent)
    assert len(mine) == blocks + 1
    for theirs in seen_by_others:
        assert theirs == mine


def test_alternating_handles_in_one_process(tmp_path):
    """The one whose block the other had filled used to fail for ever, and its plan grew old."""
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(privrl.ReleaseStore(tmp_path / "s.db")) for _ in range(3)]
        agents = [live(store) for store in stores]
        for index in range(USERS):
            begins, acts, ends = (agents[(index + shift) % 3] for shift in range(3))
            ticket = begins.begin_episode(index)
            assert acts.begin_episode(str(index)) == ticket
            assert ticket.plan == int(np.searchsorted(LEARNER.blocks(USERS), index, side="right"))
            assert 0 <= acts.act(ticket, 0, 0) < 2
            assert acts._plans.closed == ticket.plan
            ends.end_episode(ticket, some(index))
        check(tmp_path / "s.db", [digests(agent) for agent in agents])


def test_a_handle_that_slept_through_everything_catches_up(tmp_path):
    with privrl.ReleaseStore(tmp_path / "s.db") as one, privrl.ReleaseStore(tmp_path / "s.db") as two:
        asleep, awake = live(one), live(two)
        early = asleep.begin_episode(0)
        for index in range(USERS):
            awake.end_episode(awake.begin_episode(index), some(index))
        asleep.end_episode(early, some(5))  # counted long ago
        assert asleep.certificate == awake.certificate
        check(tmp_path / "s.db", [digests(asleep), digests(awake)])


PROGRAM = textwrap.dedent(
    """
    import json, sys, time
    import numpy as np
    import privrl
    from privrl.privacy import PairingError
    from test_agent import USERS, live, some
    from test_agent_processes import digests

    path, me, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    agent = live(privrl.ReleaseStore(path))
    waited = time.monotonic()
    for index in range(USERS):
        if index % count != me and index % 7:  # some people are served by everybody
            continue
        while True:
            try:
                ticket = agent.begin_episode(index)
                break
            except PairingError:  # in fixed order, others must end first
                assert time.monotonic() - waited < 120
                time.sleep(0.01)
        assert 0 <= agent.act(ticket, 0, 0) < 2
        agent.end_episode(ticket, some(index))
    while agent.num_arrived < USERS or agent._plans.closed < len(agent._arrivals._ends):
        assert time.monotonic() - waited < 120
        time.sleep(0.01)
        agent.policy
    print(json.dumps(digests(agent)))
    """
)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_processes_at_once(tmp_path, count):
    path = tmp_path / "s.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), str(me), str(count)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for me in range(count)
    ]
    answers = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * count, answers
    check(path, [json.loads(out) for out, _ in answers])
