"""Test vectors of local studies: what a client in any language must make of a document, a plan, a ticket and words.

`PYTHONPATH=tests python -m service.vectors` prints the file `client/vectors.json`. The output never changes. Each
message starts from a study document and ends with the bytes that are sent. `words` are all 64-bit words that were
drawn, in order. Thresholds are `[symbols, size, epsilon, threshold]`; caps are `[epsilons, cap, whether their sum
exceeds it]`. Visits belong to one device, in a study that takes several reports of it: the messages, what the first one
charges (the epsilon of every report as in the document; their exact sum is at most the declared `epsilon`), and the
largest cap that is too low for it.
"""

import functools
import hashlib
import json
import math
import random
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt64

import privrl
from privrl.contracts.learner import Plan
from privrl.learners.tabular.ucbvi import UCBVI
from privrl.mdp.types import TabularPolicy, Trajectory
from privrl.privacy.noise.discrete import lie_threshold
from privrl.privacy.noise.random_words import Words
from privrl.privacy.trust.privatizers import Local
from privrl.privacy.trust.symbol_channels import SymbolReports
from privrl.statistics.counts import Asking
from privrl.studies.local.document import document_of, identity_of
from privrl.studies.local.local_plans import local_study
from privrl.studies.local.wire import FORMAT, Message, SignedTicket

VECTORS = Path(privrl.__file__).parent / "service" / "client" / "vectors.json"
_STUDIES: tuple[tuple[int, int, int, bool, Asking, float], ...] = (
    (4, 2, 6, True, "first-visit", 1.0),
    (3, 2, 1, True, "first-visit", 0.1),
    (5, 3, 4, True, "first-visit", 3.7),
    (3, 2, 5, False, "first-visit", 0.5),
    (2, 3, 3, False, "stage-pair", 8.0),
    (6, 2, 4, False, "stage-pair", 0.25),
)
_EACH = 10
_VISITS = ((0, 2, 2.0), (3, 3, 20.0), (5, 7, 0.7))  # a study, its number of reports, and the epsilon of all of them


class _Listed(Words):
    """Words of a known key, and which of them were taken."""

    def __init__(self, name: str) -> None:
        super().__init__(hashlib.sha256(name.encode()).digest())
        self.taken: list[int] = []

    def take(self, count: int) -> UInt64[np.ndarray, " n"]:
        found = super().take(count)
        self.taken += [int(word) for word in found]
        return found


def vectors() -> dict[str, Any]:
    """All vectors; the same every time."""
    chosen = random.Random(FORMAT)
    sizes = [(k, chosen.randint(1, k - 1), math.exp(chosen.uniform(-9.0, 6.0))) for k in (2, 3, 17, 999) * 10]
    edges = [(2, 1, 2.0**-64), (5, 4, 1024.0), (5, 1, 4096.0), (2**32, 2**31, 1.0)]
    return {
        "format": FORMAT,
        "thresholds": [[k, d, e.hex(), str(lie_threshold(k, e, d))] for k, d, e in sizes + edges],
        "caps": [_cap(*one) for one in (((0.1, 0.2), 0.3), ((0.1, 0.2), 0.31), ((0.5,), 0.5), ((1.0, 1e-9), 1.0))],
        "messages": [one for number in range(len(_STUDIES)) for one in _messages(number, chosen, _EACH)],
        "visits": [_visits(*one, chosen) for one in _VISITS],
    }


def _cap(epsilons: tuple[float, ...], cap: float) -> list[Any]:
    return [[epsilon.hex() for epsilon in epsilons], cap, sum(map(Fraction, epsilons)) > Fraction(cap)]


def _messages(
    study: int, chosen: random.Random, count: int, m: int = 1, whole: float | None = None
) -> list[dict[str, Any]]:
    """So many messages to a study that takes `m` reports of a device, with an epsilon of its own or `whole`."""
    states, actions, horizon, stationary, asking, epsilon = _STUDIES[study]
    learner = UCBVI(jnp.zeros((1, states, actions)), horizon, stationary=stationary, asking=asking)
    ((name, channel),) = local_study(learner, Local(epsilon=epsilon if whole is None else whole), m)[1].items()
    reports = channel.reports()
    assert isinstance(reports, SymbolReports)
    document = document_of(learner, {name: reports}, 1000, f"{study:032x}", max_episodes_per_unit=m)
    made = functools.partial(_message, document, reports, horizon, chosen)
    return [made(f"study {study}, message {i}", (states, actions)) for i in range(count)]


def _visits(study: int, m: int, epsilon: float, chosen: random.Random) -> dict[str, Any]:
    messages = _messages(study, chosen, m, m, epsilon)
    charged = [json.loads(messages[0]["document"])["parts"][0]["epsilon"]] * m
    exact = sum(Fraction(float.fromhex(one)) for one in charged)
    too_low = epsilon
    while Fraction(too_low) >= exact:
        too_low = math.nextafter(too_low, 0.0)
    return {"epsilon": epsilon, "charged": charged, "too_low": too_low, "messages": messages}


def _message(
    document: bytes,
    reports: SymbolReports,
    horizon: int,
    chosen: random.Random,
    name: str,
    sizes: tuple[int, int],
) -> dict[str, Any]:
    states, actions = sizes
    number = chosen.choice((chosen.randrange(100), chosen.randrange(10**18)))
    plan = [[chosen.randrange(actions) for _ in range(states)] for _ in range(horizon)]
    visited = [chosen.randrange(states) for _ in range(chosen.choice((0, 1, *[horizon] * 6)))]
    played = [plan[h][state] if chosen.random() < 0.8 else chosen.randrange(actions) for h, state in enumerate(visited)]
    steps = [{"state": state, "action": action, "reward": 0.0} for state, action in zip(visited, played, strict=True)]
    if steps and chosen.random() < 0.7:  # otherwise the last next state was not recorded
        steps[-1]["next_state"] = chosen.randrange(states)
    policy = TabularPolicy(jnp.asarray(np.eye(actions)[np.array(plan)]))
    symbol = reports.truth(Trajectory.from_steps(steps, horizon=horizon), Plan(policy), number)
    words = _Listed(name)
    symbols = reports.randomise(symbol, words)
    expires = 4_102_444_800 + chosen.randrange(10**6)  # from 2100 on
    ticket = SignedTicket(identity_of(document), number, chosen.randrange(9), expires, chosen.randbytes(16))
    return {
        "document": document.decode(),
        "hash": ticket.study.hex(),
        "ticket": {
            "number": str(number),
            "plan": ticket.plan,
            "expires": str(expires),
            "mac": ticket.mac.hex(),
        },
        "plan": {"actions": plan},
        "steps": steps,
        "words": [str(word) for word in words.taken],
        "symbol": int(symbol),
        "symbols": symbols.tolist(),
        "bytes": Message(ticket, (symbols,)).to_bytes().hex(),
    }


def text_of(found: dict[str, Any]) -> str:
    """The file: one line for each entry of a list."""
    lists = (
        f' "{name}": [\n' + ",\n".join("  " + json.dumps(one) for one in entries) + "\n ]"
        for name, entries in found.items()
        if isinstance(entries, list)
    )
    return f'{{\n "format": {found["format"]},\n' + ",\n".join(lists) + "\n}\n"


if __name__ == "__main__":
    sys.stdout.write(text_of(vectors()))
