"""The browser's client against Python's: thresholds, true symbols, random sets and bytes, from the same words."""

import gzip
import json
import math
import random
import shutil
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import privrl
from privrl.contracts.learner import Plan
from privrl.mdp.types import TabularPolicy, Trajectory
from privrl.privacy.noise.discrete import lie_threshold, select
from privrl.privacy.noise.subset import best_size
from privrl.privacy.noise.words import Words
from privrl.statistics.counts import TransitionCounts
from privrl.studies.wire import Message, SignedTicket

CLIENT = Path(privrl.__file__).parent / "service" / "client" / "privrl-client.mjs"


class Listed(Words):
    """Words of a known key, and which of them were taken."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.taken: list[int] = []

    def take(self, count: int) -> np.ndarray:
        found = super().take(count)
        self.taken += [int(word) for word in found]
        return found


def case(number: int, rng: random.Random) -> tuple[dict, dict]:
    """A study, a plan, an episode and words; and what Python makes of them."""
    states, actions, horizon = rng.randint(2, 5), rng.randint(2, 3), rng.randint(1, 6)
    asking, counting = rng.choice(
        [("first-visit", "per-stage"), ("first-visit", "pooled"), ("stage-pair", "per-stage")]
    )
    statistic = TransitionCounts(states, actions, horizon, counting=counting, asking=asking)
    epsilon = math.exp(rng.uniform(-3.0, 3.0))
    size = best_size(statistic.num_symbols, epsilon)
    plan = [[rng.randrange(actions) for _ in range(states)] for _ in range(horizon)]
    steps = [
        {"state": rng.randrange(states), "action": rng.randrange(actions), "reward": 0.0}
        for _ in range(rng.randint(1, horizon))
    ]
    if rng.random() < 0.5:
        steps[-1]["next_state"] = rng.randrange(states)
    policy = TabularPolicy(jnp.asarray(np.eye(actions)[np.array(plan)]))
    record = Trajectory.from_steps(steps, horizon=horizon)
    symbol = int(statistic.symbol(record, Plan(policy, None), jnp.asarray(number)))
    words = Listed(rng.randbytes(32))
    symbols = select(words, symbol, statistic.num_symbols, size, epsilon)
    ticket = SignedTicket(rng.randbytes(32), number, rng.randrange(9), rng.randrange(2**40), rng.randbytes(16))
    study = {
        "states": states,
        "actions": actions,
        "horizon": horizon,
        "asking": asking,
        "counting": counting,
        "symbols": statistic.num_symbols,
        "size": size,
        "epsilon": epsilon.hex(),
    }
    given = {
        "study": study,
        "hash": ticket.study.hex(),
        "ticket": {
            "number": str(number),
            "plan": ticket.plan,
            "expires": str(ticket.expires),
            "mac": ticket.mac.hex(),
        },
        "plan": plan,
        "steps": steps,
        "words": [str(word) for word in words.taken],
    }
    message = Message(ticket, (symbols,)).to_bytes()
    return given, {"symbol": symbol, "symbols": symbols.tolist(), "left": 0, "bytes": message.hex()}


def test_the_browser_makes_the_messages_of_python() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed, so the browser's client is not run.")
    rng = random.Random(7)
    kinds = [(k, rng.randint(1, k - 1), math.exp(rng.uniform(-9.0, 6.0))) for k in (2, 3, 17, 1000) for _ in range(25)]
    given, expected = zip(*(case(rng.randrange(2**40), rng) for _ in range(60)), strict=True)
    caps = [([(0.1).hex(), (0.2).hex()], 0.3), ([(0.5).hex()], 0.5), ([(1.0).hex(), (1e-9).hex()], 1.0)]
    cases = {"thresholds": [(k, d, e.hex()) for k, d, e in kinds], "messages": given, "caps": caps}
    done = subprocess.run(
        [node, str(Path(__file__).with_name("replay.mjs")), str(CLIENT)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["thresholds"] == [str(lie_threshold(k, e, d)) for k, d, e in kinds]
    assert found["messages"] == list(expected)
    assert found["caps"] == [True, False, True]  # .1 + .2 as exact binary fractions is above .3


def test_the_client_is_small() -> None:
    assert len(gzip.compress(CLIENT.read_bytes(), 9)) <= 4096
