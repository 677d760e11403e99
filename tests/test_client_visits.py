"""Reports of several visits of one device: they share epsilon, and the device counts them."""

import json
import math

import jax
import pytest
from test_client import ENV, GAUSSIAN, LEARNER, LOCAL, walk

import privrl
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.store.errors import StoreBudgetError
from privrl.studies.local.wire import MessageError
from privrl.studies.results.certification import certify

M = 3


def server(privatizer=LOCAL, num_users=60, m=M):
    return privrl.Server(LEARNER, privatizer, num_users=num_users, key=jax.random.key(0), max_episodes_per_unit=m)


def client(path, privatizer=LOCAL, m=M, **settings):
    return privrl.Client(LEARNER, privatizer, store=path, max_episodes_per_unit=m, **settings)


@pytest.mark.parametrize("privatizer", [LOCAL, GAUSSIAN], ids=["symbols", "vectors"])
def test_a_visit_is_reported_once_and_no_more_than_m_are(tmp_path, privatizer):
    ours, device = server(privatizer), client(tmp_path / "device.db", privatizer)
    sent = []
    for visit in range(M):
        broadcast = ours.broadcast()
        sent.append(device.report(walk(broadcast, visit), broadcast, visit).to_bytes())
    assert len(set(sent)) == M
    again, broadcast = client(tmp_path / "device.db", privatizer), ours.broadcast()
    for visit in reversed(range(M)):
        assert again.report(walk(broadcast, 9), broadcast, visit).to_bytes() == sent[visit]
    for visit in (M, -1, 0.5, True, "1", float("nan")):  # on the code before, 0.5 was a visit of its own
        with pytest.raises(MessageError, match="whole number from 0 to 2") as refused:
            again.report(walk(broadcast, 9), broadcast, visit)
        assert refused.value.reason == "spent"
    assert [ours.absorb(message) for message in sent] == [True] * M and ours.num_reports == M


def test_the_budget_is_the_persons_not_the_reports(tmp_path):
    """Epsilon is what was asked for, in m events of epsilon/m each; so is mu^2 with Gaussian noise."""
    for privatizer in (LOCAL, GAUSSIAN):
        certificate = client(tmp_path / f"{privatizer.delta}.db", privatizer).certificate
        (event,) = certificate.events
        assert event.times == M and certificate.messages_per_user == M
        if privatizer.delta is None:
            assert event.parameter == pytest.approx(privatizer.epsilon / M) and certificate.delta == 0.0
        else:
            assert gdp_epsilon(event.parameter * math.sqrt(M), privatizer.delta) == pytest.approx(1.0, rel=1e-6)
        assert certificate.epsilon == pytest.approx(privatizer.epsilon, rel=1e-6)
        assert "all of their reports (at most 3" in certificate.neighbours


def test_a_study_is_charged_with_its_first_report(tmp_path):
    device, first, second = client(tmp_path / "device.db"), server(), server()
    for visit in range(M):
        broadcast = first.broadcast()
        device.report(walk(broadcast, visit), broadcast, visit)
        with privrl.ReleaseStore(tmp_path / "device.db") as store:
            assert store.describe()["spent"]["epsilon"] == pytest.approx(2.0, rel=1e-9)
    broadcast = second.broadcast()
    with pytest.raises(StoreBudgetError):  # another study is another budget, and the cap is that of one
        device.report(walk(broadcast, 0), broadcast)


@pytest.mark.parametrize("privatizer", [LOCAL, GAUSSIAN], ids=["symbols", "vectors"])
def test_a_cap_below_epsilon_is_not_shared_out(tmp_path, privatizer):
    """On the code before, a part of the reports was made; with Gaussian noise that reveals more than its share."""
    device = client(tmp_path / "device.db", privatizer, cap=privatizer.epsilon / 2)
    broadcast = server(privatizer).broadcast()
    with pytest.raises(StoreBudgetError):
        device.report(walk(broadcast, 0), broadcast)


@pytest.mark.parametrize(("before", "visit", "after"), [(1, 0, 2), (2, 1, 1)])
def test_an_app_that_counts_other_visits_reports_nothing_more(tmp_path, before, visit, after):
    """On the code before, one report at the whole epsilon was followed by another of two, or the other way round."""
    ours, path = server(), tmp_path / "device.db"
    broadcast = ours.broadcast()
    kept = client(path, m=before, cap=20.0).report(walk(broadcast, 0), broadcast, visit)
    with pytest.raises(MessageError, match="another number of visits") as refused:
        client(path, m=after, cap=20.0).report(walk(broadcast, 0), broadcast, after - 1)
    assert refused.value.reason == "spent"
    assert client(path, m=before, cap=20.0).report(walk(broadcast, 1), broadcast, visit).to_bytes() == kept.to_bytes()


class Fatal(BaseException):
    """The device stops."""


class Stopping(privrl.ReleaseStore):
    """Stops once, when a budget is reserved and before that is kept."""

    stopped = False

    def release(self, name, pool, charge, draw, **distribution):
        def stop():
            self.stopped = True
            raise Fatal

        return super().release(name, pool, charge, draw if self.stopped else stop, **distribution)


def test_a_charge_that_was_interrupted_stays(tmp_path):
    broadcast = server().broadcast()
    with Stopping(tmp_path / "device.db") as store, pytest.raises(Fatal):
        client(store).report(walk(broadcast, 0), broadcast)
    with privrl.ReleaseStore(tmp_path / "device.db") as store:
        assert client(store).report(walk(broadcast, 0), broadcast)
        assert store.describe()["spent"]["epsilon"] == pytest.approx(2.0, rel=1e-9)


def test_the_documents_of_one_and_of_several_reports(tmp_path):
    one, several = json.loads(server(m=1).document), json.loads(server().document)
    assert "reports" not in one and several["reports"] == M
    epsilon = [float.fromhex(document["parts"][0]["epsilon"]) for document in (one, several)]
    assert epsilon[1] == pytest.approx(epsilon[0] / M)


@pytest.mark.parametrize("privatizer", [LOCAL, GAUSSIAN], ids=["symbols", "vectors"])
def test_the_certificate_of_the_server_follows_from_its_settings(privatizer):
    ours = server(privatizer)
    for number in range(4):
        broadcast = ours.broadcast()
        device = privrl.Client(LEARNER, privatizer, key=jax.random.key(number), max_episodes_per_unit=M)
        ours.absorb(device.report(walk(broadcast, number), broadcast, number % M))
    result = ours.result()
    verdict = certify(result.certificate, result.policy)
    assert verdict.ok, verdict.problems
    assert result.certificate.epsilon == pytest.approx(privatizer.epsilon, rel=1e-6)
    assert result.report["episodes"] == 4 and "users" not in result.report


def test_a_simulation_of_visits_pays_for_all_of_them():
    found = privrl.run(ENV, LEARNER, LOCAL, episodes=60, key=jax.random.key(0), max_episodes_per_unit=M)
    (event,) = found.certificate.events
    assert (event.times, event.parameter) == (M, pytest.approx(2.0 / M))
    assert found.certificate.epsilon == pytest.approx(2.0)
    checks = {check.name: check.ok for check in certify(found.certificate, found.policy).checks}
    assert checks["settings"] and checks["releases"] and checks["cost"]
