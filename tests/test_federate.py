"""Client and server: one noisy message per person, absorbed once, whoever absorbs it."""

import dataclasses
import hashlib
import json
import shutil
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world

import privrl
from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import PairingError
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem
from privrl.studies.local.wire import Message, MessageError, plan_from_bytes

ENV = tiny_world()
LEARNER = get("ldp-ucbvi").learner(Problem.of(ENV))
LOCAL = privrl.Local(epsilon=2.0)
GAUSSIAN = privrl.Local(epsilon=1.0, delta=1e-5)


rollout = eqx.filter_jit(ENV.rollout)


def walk(broadcast, seed):
    return rollout(broadcast.plan.policy, jax.random.key(seed))


def answer(broadcast, seed, privatizer=LOCAL):
    client = privrl.Client(LEARNER, privatizer, key=jax.random.fold_in(jax.random.key(9), seed))
    return client.report(walk(broadcast, seed), broadcast)


def serve(num_users=50, privatizer=LOCAL, store=None, learner=LEARNER, **more):
    return privrl.Server(learner, privatizer, num_users=num_users, key=jax.random.key(0), store=store, **more)


def forged(message, **changed):
    """The message under another ticket with the same mac."""
    return dataclasses.replace(message, ticket=dataclasses.replace(message.ticket, **changed))


def filled(num_reports, num_users=50, privatizer=LOCAL, store=None):
    server = serve(num_users, privatizer, store)
    for i in range(num_reports):
        assert server.absorb(answer(server.broadcast(), i, privatizer).to_bytes())
    return server


def books(server):
    """Everything that was counted: per block, how many reports and their sums."""
    store, plans = server._store, server._plans
    return [(store.count(f"block {t}"), _listed(store.total(f"block {t}"))) for t in range(len(plans._ends) - 1)]


def _listed(total):
    return None if total is None else total.tolist()


# ------------------------------------------------------------------------------------------------------ one server


def test_a_whole_study():
    server = filled(30, num_users=30)
    assert server.num_reports == 30
    assert len(server._plans) == len(LEARNER.schedule(30)) + 1
    result = server.result()
    assert result.certificate.notion == "local"
    assert result.certificate.epsilon == pytest.approx(2.0) and result.certificate.delta == 0.0
    np.testing.assert_allclose(result.policy.probabilities.sum(-1), 1.0)
    with pytest.raises(MessageError, match="All 30 users"):
        server.broadcast()


@pytest.mark.parametrize("privatizer", [LOCAL, GAUSSIAN], ids=["symbols", "vectors"])
def test_the_certificate_says_what_was_drawn(privatizer):
    """On the code before: "0 of 1 declared" after all reports."""
    server = filled(0, num_users=5, privatizer=privatizer)
    assert server.result().certificate.releases[0]["counted"] == 0
    for i in range(5):
        server.absorb(answer(server.broadcast(), i, privatizer))
    (release,) = server.result().certificate.releases
    assert (release["declared"], release["counted"]) == (1, 1)
    noise = [(noise["sensitivity"], noise["scale"]) for noise in release["noise"]]
    assert noise == [] if privatizer is LOCAL else [server._reports["transitions"].calibration]


def test_without_noise_the_server_counts_exactly_what_it_asked():
    """At infinite epsilon each answer is the next state at the first visit of the ticket's target, or nothing."""
    local = privrl.Local(epsilon=float("inf"))
    server = serve(20, local)
    expected = np.zeros((3, 2, 3))
    for i in range(20):
        broadcast = server.broadcast()
        trajectory = walk(broadcast, i)
        played = np.argwhere(np.asarray(broadcast.plan.policy.probabilities).max(axis=0) > 0)
        target = played[i % len(played)].tolist()
        columns = (trajectory.states, trajectory.actions, trajectory.next_states)
        steps = zip(*(column.tolist() for column in columns), strict=True)
        after = next((after for s, a, after in steps if [s, a] == target), None)
        if after is not None:
            expected[(*target, after)] += 1
        server.absorb(answer(broadcast, i, local))
    assert 0 < expected.sum() < 20
    np.testing.assert_allclose(server._plans._state.released["transitions"].value, expected, atol=1e-12)


def test_a_message_counts_once_and_refusals_lose_nothing():
    server = filled(3)
    broadcast = server.broadcast()
    message = answer(broadcast, 7)
    assert server.absorb(message)
    before = books(server)

    def fresh(*parts, plan=0):
        return Message(dataclasses.replace(server.ticket(), plan=plan), parts)

    (symbol,) = message.parts[0]
    stranger = filled(0).broadcast()
    bad = [
        (dataclasses.replace(message, parts=(np.array([(symbol + 1) % 4]),)), "already reported something else"),
        (forged(message, number=999), "not issued"),
        (forged(message, expires=message.ticket.expires + 1), "not issued"),
        (forged(message, mac=bytes(16)), "not issued"),
        (fresh(*message.parts, plan=5), "not issued"),
        (fresh(), "parts"),
        (fresh(np.array([10])), "symbols"),
        (fresh(np.array([-1])), "symbols"),
        (fresh(np.array([0.5])), "symbols"),
        (fresh(np.array(1)), "symbols"),
        (fresh(np.array([np.nan])).to_bytes(), "not finite"),
        (fresh(np.array([0, 1])), "symbols"),
        (fresh(np.zeros(10_000)).to_bytes(), "bytes"),
        (b"nonsense" * 11, "format"),
        (server.plan(0)[:90], "format"),
        (broadcast.ticket.to_bytes() + bytes(14), "format"),
        (answer(stranger, 1), "another study"),
    ]
    for wrong, words in bad:
        with pytest.raises(MessageError, match=words):
            server.absorb(wrong)
    for again in (message, message.to_bytes()):  # kept already, and a lost answer must not look like a refusal
        assert not server.absorb(again)
    assert books(server) == before
    assert server.num_reports == 4
    assert len(message.to_bytes()) == server.message_bytes


def test_a_message_that_is_sent_again_after_the_end_is_kept():
    server = serve(5)
    messages = [answer(server.broadcast(), i) for i in range(6)]
    assert all(server.absorb(message) for message in messages[:5])
    assert not any(server.absorb(message) for message in messages[:5])
    with pytest.raises(MessageError, match="All 5 users"):
        server.absorb(messages[5])


def huge(server, number):
    return Message(server.ticket(), (number,))


def test_a_report_out_of_its_public_range_is_refused():
    """On the code before, a report of 1.7e308 was absorbed and the policy of the next plan was all zeros."""
    server = filled(4, num_users=5, privatizer=GAUSSIAN)
    reports = server._reports["transitions"]
    for wrong in (
        np.full(reports.shape, 1.7e308),
        np.full(reports.shape, -0.0),
        np.full(reports.shape, 5e-324),
        np.zeros(reports.shape),
        np.full(reports.shape, 2**63 - 1),
        np.full(reports.shape, -(2**63)),
        np.full(reports.shape, reports.largest + 1),
        np.full(reports.shape, -reports.largest - 1),
        np.zeros((*reports.shape, 1), np.int64),
    ):
        before = books(server)
        with pytest.raises(MessageError, match=r"integers from|bytes"):
            server.absorb(huge(server, wrong).to_bytes())
        assert books(server) == before
    assert server.absorb(huge(server, np.full(reports.shape, reports.largest)))
    probabilities = np.asarray(server.result().policy.probabilities)
    assert server._plans.finished
    np.testing.assert_allclose(probabilities.sum(-1), 1.0)


def test_sums_that_could_leave_64_bits_are_refused_at_the_start():
    with pytest.raises(PairingError, match="do not fit in 64 bits"):
        privrl.Server(LEARNER, privrl.Local(epsilon=1e-3, delta=1e-9), num_users=10**8)


@pytest.mark.parametrize("privatizer", [LOCAL, GAUSSIAN], ids=["symbols", "vectors"])
def test_messages_arrive_in_any_order(privatizer):
    """Bit by bit: sums are whole numbers."""
    sums = []
    for order in (1, -1):
        server = serve(50, privatizer)
        broadcasts = [server.broadcast() for _ in range(10)]
        for message in [answer(b, i, privatizer) for i, b in enumerate(broadcasts)][::order]:
            server.absorb(message)
        sums.append(books(server))
    assert sums[0] == sums[1]


def test_late_reports_are_read_with_the_plan_they_answered():
    """A ticket of plan 0 that is answered after two more plans counts where plan 0 asked."""
    local = privrl.Local(epsilon=float("inf"))
    learner = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=4, growth=1.5)
    server = serve(30, local, learner=learner)
    late = server.broadcast()

    def told(broadcast, i):
        client = privrl.Client(learner, local, key=jax.random.key(i))
        return client.report(walk(broadcast, i), broadcast)

    while len(server._plans) < 3:
        server.absorb(told(server.broadcast(), server.num_reports))
    message = told(late, 99)
    server.absorb(message)
    counted = server._store.total("block 2")
    expected = server._reports["transitions"].to_steps(message.parts[0], late.plan, late.ticket.number)
    assert expected.any()
    np.testing.assert_array_equal(counted, expected)


@pytest.mark.parametrize("privatizer", [LOCAL, GAUSSIAN], ids=["symbols", "vectors"])
def test_plans_survive_the_wire_and_a_deterministic_one_is_its_actions(privatizer):
    server = filled(25, privatizer=privatizer)
    ticket = server.ticket()
    content = server.plan(ticket.plan)
    plan, published = plan_from_bytes(content, ticket, LEARNER, privatizer), server._plans[ticket.plan]
    np.testing.assert_array_equal(plan.policy.probabilities, published.policy.probabilities)
    assert content == server.plan(ticket.plan)
    if privatizer is LOCAL:
        actions = np.asarray(published.policy.probabilities).argmax(axis=-1)
        assert content[-4 - actions.nbytes : -4] == actions.astype("<i8").tobytes()
    with pytest.raises(MessageError, match="not a message"):
        Message.from_bytes(content)
    with pytest.raises(MessageError, match="fit this learner"):
        plan_from_bytes(content, ticket, privrl.UCBVI(jnp.zeros((1, 4, 2)), 3), privatizer)
    for other in (dataclasses.replace(ticket, plan=ticket.plan + 1), dataclasses.replace(ticket, study=bytes(32))):
        with pytest.raises(MessageError, match="not the plan that the ticket names") as caught:
            plan_from_bytes(content, other, LEARNER, privatizer)
        assert caught.value.reason == "unknown-plan"
    with pytest.raises(MessageError, match="no plan 99 yet"):
        server.plan(99)


def test_the_document_says_what_is_asked_and_its_hash_is_the_study():
    with ReleaseStore.in_memory() as store:
        server, again = serve(store=store), serve(store=store)
        assert server.document == again.document and server.study == hashlib.sha256(server.document).digest()
        content = json.loads(server.document)
        (part,) = content["parts"]
        assert (content["format"], content["users"], content["horizon"]) == (3, 50, ENV.horizon)
        assert 2.0 - 1e-9 < float.fromhex(part["epsilon"]) <= 2.0 and (part["symbols"], part["size"]) == (4, 1)
        assert part["question"]["states"] == 3 and part["question"]["asking"] == "first-visit"
        assert serve().study != server.study  # equal settings, another study
    client = privrl.Client(LEARNER, LOCAL, key=jax.random.key(0), study=server.study)
    with pytest.raises(MessageError, match="another study") as caught:
        client.report(walk(serve().broadcast(), 0), serve().broadcast())
    assert caught.value.reason == "other-study"


def test_a_study_of_an_older_format_is_not_continued():
    """Its people know it under another name and could report twice."""
    with ReleaseStore.in_memory() as store:
        store.fact("study", lambda: bytes(16))
        with pytest.raises(PairingError, match="older format"):
            serve(store=store)


def test_an_expired_ticket_is_refused_unless_its_report_is_kept():
    time = [100.0]
    server = serve(valid=50.0, clock=lambda: time[0])
    first, second = (answer(server.broadcast(), i) for i in range(2))
    assert first.ticket.expires == 150
    assert server.absorb(first)
    time[0] = 150.0
    assert not server.absorb(first)  # sent again: kept, whatever the time
    for late, reason in ((second, "expired"), (dataclasses.replace(first, parts=(np.array([3]),)), "conflict")):
        if late.parts[0] != first.parts[0] or late is second:
            with pytest.raises(MessageError) as caught:
                server.absorb(late)
            assert caught.value.reason == reason
    assert server.num_reports == 1


def test_many_messages_at_once_are_answered_as_if_one_by_one():
    """Across the ends of blocks, with repeated, forged and conflicting ones among them; the sums are the same."""
    learner = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=3, growth=1.5)
    books_of, answers = [], []
    for together in (True, False):
        with ReleaseStore.in_memory() as store:
            server = serve(20, store=store, learner=learner)
            broadcasts = [server.broadcast() for _ in range(24)]
            clients = [privrl.Client(learner, LOCAL, key=jax.random.key(i)) for i in range(24)]
            sent = [client.report(walk(b, i), b) for i, (client, b) in enumerate(zip(clients, broadcasts, strict=True))]
            conflict = dataclasses.replace(sent[1], parts=(np.array([(int(sent[1].parts[0][0]) + 1) % 4]),))
            batch = [*sent[:5], sent[2], forged(sent[6], mac=bytes(16)), conflict, b"x", *sent[7:], sent[0]]
            found = server.absorb_all(batch) if together else [server.absorb_all([one])[0] for one in batch]
            answers.append([one if isinstance(one, bool) else one.reason for one in found])
            books_of.append(books(server))
            assert server.num_reports == 20
    assert answers[0] == answers[1] and books_of[0] == books_of[1]
    assert answers[0][5:9] == [False, "forged", "conflict", "malformed"] and answers[0][-1] is False
    assert answers[0].count("full") == 2


def test_a_curator_is_not_local():
    with pytest.raises(TypeError, match="Local"):
        privrl.Server(LEARNER, privrl.Central(epsilon=1.0, delta=1e-5), num_users=5)


# --------------------------------------------------------------------------------------- several servers, one store


@pytest.mark.parametrize("handles", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_servers_side_by_side_share_one_study(tmp_path, handles):
    """Alternating handles in one process: no ticket twice, the same plans, every report once.

    On the code before, both servers gave out ticket 0, and the second report of a ticket was acknowledged and lost.
    """
    num_users = 60
    stores = [ReleaseStore(tmp_path / "s.db") for _ in range(handles)]
    learner = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=4, growth=1.5)
    servers = [serve(num_users, store=store, learner=learner) for store in stores]
    rng, tickets, kept, waiting = np.random.default_rng(0), set(), {}, []
    while len(kept) < num_users:
        one, other = servers[rng.integers(handles)], servers[rng.integers(handles)]
        broadcast = one.broadcast()
        number = broadcast.ticket.number
        assert number not in tickets
        tickets.add(number)
        waiting.append((answer(broadcast, number), broadcast.plan))
        if len(waiting) > rng.integers(8):
            message, plan = waiting.pop(rng.integers(len(waiting)))
            assert other.absorb(message)
            assert not servers[rng.integers(handles)].absorb(message)
            kept[message.ticket] = (message, plan)
    for message, _ in waiting:
        with pytest.raises(MessageError, match="All 60"):
            servers[0].absorb(message)
    reports = servers[0]._reports["transitions"]
    expected = sum(reports.to_steps(m.parts[0], plan, m.ticket.number) for m, plan in kept.values())
    for server in (*servers, serve(num_users, store=stores[0], learner=learner)):
        assert len(server._plans) > 5
        assert server.num_reports == num_users
        assert [count for count, _ in books(server)] == np.diff(server._plans._ends).tolist()
        np.testing.assert_array_equal(sum(np.array(total) for _, total in books(server)), expected)
        for mine, theirs in zip(server._plans._plans, servers[0]._plans._plans, strict=True):
            np.testing.assert_array_equal(mine.policy.probabilities, theirs.policy.probabilities)
    for store in stores:
        store.close()


def test_a_server_on_another_plan_catches_up_before_it_speaks(tmp_path):
    with ReleaseStore(tmp_path / "s.db") as one, ReleaseStore(tmp_path / "s.db") as two:
        learner = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=4, growth=1.5)
        ahead, behind = serve(50, store=one, learner=learner), serve(50, store=two, learner=learner)
        while len(ahead._plans) < 3:
            ahead.absorb(answer(ahead.broadcast(), ahead.num_reports))
        assert len(behind._plans) == 1
        assert behind.ticket().plan == 2
        while len(ahead._plans) < 4:
            ahead.absorb(answer(ahead.broadcast(), ahead.num_reports))
        broadcast = ahead.broadcast()
        assert behind.absorb(answer(broadcast, 77))  # an answer to a plan that this server has not made yet


def test_servers_that_differ_are_refused(tmp_path):
    with ReleaseStore(tmp_path / "s.db") as store:
        serve(50, store=store)
        with pytest.raises(StudyMismatchError, match="`users`"):
            serve(51, store=store)
        with pytest.raises(StudyMismatchError, match="`events`"):
            serve(50, privrl.Local(epsilon=1.0), store)
        with pytest.raises(StudyMismatchError, match="`learner`"):
            serve(50, store=store, learner=privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=3))
        with pytest.raises(ValueError, match="randomness of ties from another `key`"):
            privrl.Server(LEARNER, LOCAL, num_users=50, key=jax.random.key(1), store=store)
        privrl.Server(LEARNER, LOCAL, num_users=50, store=store)


def test_a_server_that_plans_otherwise_is_refused(tmp_path, monkeypatch):
    """Another version or machine may round otherwise; it would then read reports with the wrong query."""
    with ReleaseStore(tmp_path / "s.db") as store:
        serve(50, store=store)
        exact = privrl.studies.local.local_plans._next_plan

        def rounded_otherwise(*arguments, **keys):
            memory, plan = exact(*arguments, **keys)
            probabilities = jnp.flip(plan.policy.probabilities, axis=-1)
            return memory, dataclasses.replace(
                plan, policy=dataclasses.replace(plan.policy, probabilities=probabilities)
            )

        monkeypatch.setattr(privrl.studies.local.local_plans, "_next_plan", rounded_otherwise)
        with pytest.raises(PairingError, match="another plan 0 than the one that was published"):
            serve(50, store=store)


def test_an_older_copy_of_a_store_refuses_answers_to_plans_that_it_has_forgotten(tmp_path):
    learner = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=4, growth=1.5)
    with ReleaseStore(tmp_path / "s.db") as store:
        serve(50, store=store, learner=learner)
    shutil.copy(tmp_path / "s.db", tmp_path / "old.db")
    with ReleaseStore(tmp_path / "s.db") as store:
        server = serve(50, store=store, learner=learner)
        for i in range(4):
            server.absorb(answer(server.broadcast(), i))
        late = answer(server.broadcast(), 9)
    with ReleaseStore(tmp_path / "old.db") as store, pytest.raises(MessageError, match="an older copy"):
        serve(50, store=store, learner=learner).absorb(late)


def test_a_purged_store_still_has_the_policy(tmp_path):
    with ReleaseStore(tmp_path / "s.db") as store:
        before = filled(20, num_users=20, store=store).result()
        store.purge()
    with ReleaseStore(tmp_path / "s.db") as store:
        after = serve(20, store=store).result()
    np.testing.assert_array_equal(before.policy.probabilities, after.policy.probabilities)


def test_a_restart_costs_the_same_whatever_the_number_of_reports(tmp_path):
    """In processor time, after the program is compiled: 100 reports in a block, and 20,100."""
    learner = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=30_000)
    with ReleaseStore(tmp_path / "s.db") as store:
        server = privrl.Server(learner, LOCAL, num_users=60_000, store=store)
        reports, plan = server._reports["transitions"], server._plans[0]
        rows = np.stack([reports.to_steps(np.array([i % 4]), plan, i) for i in range(100)])
        costs = []
        for first, copies in ((0, 1), (100, 200)):
            keys = [str(first + i) for i in range(100 * copies)]
            store.contribute("block 0", keys, np.tile(rows, (copies, 1)), scope="reports", at_most=30_000)
            privrl.Server(learner, LOCAL, num_users=60_000, store=store)
            times = []
            for _ in range(7):
                began = time.process_time()
                again = privrl.Server(learner, LOCAL, num_users=60_000, store=store)
                times.append(time.process_time() - began)
            costs.append(min(times))
        assert again.num_reports == 20_100
    assert costs[1] < 1.5 * costs[0]
