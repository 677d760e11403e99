"""A live agent that nobody told how many people will come: as the simulation, in epochs, with places to spare."""

import jax
import numpy as np
import pytest
from test_agent import ENV, LEARNER, PRIVATE, person_key, walk

import privrl
from privrl.privacy.trust.privatizers import PairingError
from privrl.studies.open_ended import OpenEnded
from privrl.studies.results.certification import certify

EPOCHS = {
    "releases double": OpenEnded(first=2, ceiling=200),
    "so many people": OpenEnded(epoch=12, ceiling=48),
    "forgetting": OpenEnded(epoch=12, forget=0.5, ceiling=48),
}


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("name", [n if n == "forgetting" else pytest.param(n, marks=pytest.mark.slow) for n in EPOCHS])
def test_it_decides_as_the_simulation(store, name, m):
    """30 visits over several epochs, of people who come m times: as `run` for the same key, noise included.

    The quick tests see epochs that double in releases behind a service, in `service/test_service_lag.py`.
    """
    key, spec = jax.random.key(7), EPOCHS[name]
    often = {"max_episodes_per_unit": m}
    ends = spec.declared(LEARNER)[0]
    visits = int(ends[ends <= 30][-1])  # the last of them ends a block
    run = privrl.run(ENV, LEARNER, PRIVATE, episodes=visits, key=key, flow=False, open_ended=spec, **often)
    assert len(run.block_ends) > 2
    seed = jax.random.split(key, (1, 1))[0, 0]
    agent = privrl.Agent(LEARNER, PRIVATE, num_users=spec, store=store, fixed_order=True, key=seed, **often)
    regret = []
    for slot in range(visits):
        if slot in (0, *run.block_ends):
            regret.append(float(ENV.regret(agent.policy)))
        ticket = agent.begin_episode(slot // m, **({"visit": slot} if m > 1 else {}))
        agent.end_episode(ticket, walk(agent, ticket, ENV, person_key(seed, ends, slot)))
    np.testing.assert_allclose(regret, run.block_regret[0], atol=1e-9)
    np.testing.assert_allclose(agent.policy.probabilities, run.policy.probabilities[0], atol=1e-9)
    ours, theirs = (one["noise"][0]["scale"] for one in (*agent.certificate.releases, *run.certificate.releases))
    assert ours == pytest.approx(theirs, rel=1e-6)
    checks = {check.name: check for check in certify(agent.result().certificate, agent.policy).checks}
    assert all(checks[what].ok for what in ("policy", "cost", "releases", "settings")), checks
    assert any("open-ended" in note for note in agent.certificate.notes)


def test_no_number_of_people_at_all(store):
    """16 million places are 120 releases: memory and time depend on these, which are the logarithm of people."""
    learner = privrl.LSVIUCB(ENV.features, ENV.horizon, rewards=ENV.rewards)
    agent = privrl.Agent(learner, PRIVATE, num_users=None, store=store, fixed_order=True, key=jax.random.key(0))
    assert agent.begin_episode(0).number == 0 and agent.num_arrived == 1
    assert max(channel.encoder.shape for channel in agent._plans.channels.values()) <= (121, 121)
    assert agent.certificate.study["users"] == OpenEnded().to_json()
    with privrl.ReleaseStore(store.path) as again, pytest.raises(ValueError, match="study"):
        privrl.Agent(learner, PRIVATE, num_users=50, store=again, fixed_order=True, key=jax.random.key(0))


def test_the_ceiling_is_a_number_of_places(store):
    spec = OpenEnded(epoch=5, ceiling=5)
    agent = privrl.Agent(LEARNER, PRIVATE, num_users=spec, store=store, patience=60)
    for person in range(5):
        agent.begin_episode(person)
    with pytest.raises(PairingError, match="All 5 places are taken"):
        agent.begin_episode(5)


def test_too_many_places_for_64_bits_are_refused(store):
    with pytest.raises(ValueError, match="64 bits"):
        privrl.Agent(LEARNER, PRIVATE, num_users=OpenEnded(ceiling=2**40), store=store, patience=60)
