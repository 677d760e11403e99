"""The loop of an online study: every query has noise of its own, whoever makes it and however."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from draws import record_draws

import privrl
from privrl.contracts.release import Declared
from privrl.privacy.noise.sources import standard_normal
from privrl.privacy.trust.privatizers import PairingError
from privrl.statistics.regressions import StateVisits
from privrl.studies.loop import Queries

PRIVATE = privrl.Central(epsilon=1.0, delta=1e-6)
DECLARED = (
    Declared("visits", StateVisits(3, 2), times=9),
    Declared("running", StateVisits(3, 2), access="running", times=9),
)
LEDGER = PRIVATE.calibrate(DECLARED)
CHANNELS = {d.name: PRIVATE.channel(d, LEDGER) for d in DECLARED}
KEPT = {name: channel.init() for name, channel in CHANNELS.items()}


def queries(listen=None):
    def noise(name):
        return lambda i: standard_normal(jax.random.fold_in(jax.random.key(0), i), (2, 3))

    return Queries(CHANNELS, KEPT, noise, listen)


def test_a_compiled_scan_is_the_loop_in_python():
    heard = []

    def plan(ask):
        def body(carry, i):
            return carry + i * ask("visits", i, None).value

        return ask.scan(body, jnp.zeros((2, 3)), 5), ask.counts

    with record_draws() as drawn:
        compiled = jax.jit(lambda: plan(queries())[0])()
    assert len(set(drawn)) == len(drawn) == 5
    listening, counts = plan(queries(lambda *heard_now: heard.append(heard_now[:2])))
    np.testing.assert_allclose(compiled, listening, atol=1e-12)
    assert heard == [("visits", i) for i in (4, 3, 2, 1, 0)] and counts == {"visits": 5}
    assert plan(queries())[1] == {"visits": 5}


def one(index):
    return lambda ask: ask("visits", index, None)


def scan(index=lambda i: i, times=1):
    def body(ask, carry, i):
        for _ in range(times):
            carry = carry + ask("visits", index(i), None).value
        return carry

    return lambda ask: ask.scan(functools.partial(body, ask), jnp.zeros((2, 3)), 4)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([one(1)], one(1)),
        ([one(1)], scan()),
        ([scan()], one(1)),
        ([scan()], scan()),
        ([], scan(times=2)),
        ([], scan(index=lambda i: 1)),
        ([], one(1.0)),
        ([], one(True)),
        ([], one(jnp.asarray(1))),
    ],
)
def test_no_index_is_used_twice(first, then):
    """Before a scan took all indices of a name, a query outside it could draw the noise of one inside."""
    ask = queries()
    for query in first:
        query(ask)
    with pytest.raises(ValueError, match="must be a new Python integer"):
        then(ask)


def test_only_rounds_are_queried():
    for name in ("running", "undeclared"):
        with pytest.raises(PairingError, match="cannot be asked for"):
            queries()(name, 0, None)
