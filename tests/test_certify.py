"""`certify` derives a certificate again: honest ones hold, and no number of one can be changed to claim more."""

import copy
import dataclasses
import functools
import json
import math
import operator
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import pytest
from contract import tiny_data, tiny_world
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

import privrl
from privrl.contracts.learner import AbstractOfflineLearner, Solution
from privrl.contracts.release import Declared
from privrl.envs.lq_worlds import LQScalar
from privrl.envs.worlds_by_name import make
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.certificate import cost_of, read_certificate
from privrl.privacy.trust.published import Published
from privrl.recipes.all_recipes import recipes
from privrl.studies.results.certification import certify
from privrl.studies.results.result import Result
from privrl.studies.study import Study

KEY = jax.random.key(7)
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5}
POLICY = TabularPolicy.uniform(2, 3, 2)


# ------------------------------------------------------------------------------------------ honest certificates


def fitted(learner: Any, privatizer: Any, **arguments: Any) -> Result:
    env = tiny_world(learner.horizon)
    return privrl.fit(tiny_data(env, 60), learner, privatizer, **arguments)


def online(name: str, people: int = 40, **budget: Any) -> Result:
    """What `run` certifies, without its simulation: every stream released to the end, every query asked once."""
    recipe = recipes[name]
    env = LQScalar(horizon=2) if recipe.family == "control" else tiny_world()
    study = Study.online(recipe.build(env), recipe.privatizer(**(budget or BUDGET)), people)
    for declared in study.declared:
        calibration = study.channels()[declared.name].calibration
        study.ledger.reconcile(declared.name, 1 if declared.access == "rounds" else declared.times, calibration)
    return Result(POLICY, study.certificate("seed"))


def after_a_crash() -> Result:
    """What a table's ledger looks like after one release was burnt and others were skipped."""
    learner = privrl.VAPVI(tiny_world().features, 6)
    study = Study.offline(learner, privrl.Central(**BUDGET), "patient")
    for name in ("gram", "targets", "gram"):
        parameter = study.ledger.spend(name)
        study.ledger.record(name, 1.5, 1.5 / parameter)
    study.ledger.burn("gram")
    study.ledger.skip("spread", to=("gram", "targets"))
    return Result(POLICY, study.certificate("seed"))


def by_an_agent() -> Result:
    env = tiny_world(horizon=3)
    learner = privrl.UCBVI(env.rewards, 3, first_block=5, growth=1.5)
    private = privrl.Central(**BUDGET, continual="honaker")
    with privrl.ReleaseStore.in_memory() as store:
        agent = privrl.Agent(learner, private, num_users=20, store=store, fixed_order=True, key=KEY)
        records = env.sample(env.behaviour_policy(), 6, KEY)
        for i in range(6):
            agent.end_episode(agent.begin_episode(f"p{i}"), jax.tree.map(lambda x, i=i: x[i], records))
        return agent.result()


def of_a_function() -> Result:
    env = make("interval-walk")
    learner = recipes["functional-reward-q"].build(env)
    assert env.arrival is not None
    return privrl.fit(privrl.data.RewardFunction(env.arrival), learner, privrl.Central(**BUDGET), key=KEY)


MADE: dict[str, Callable[[], Result]] = {
    "dp-apvi": lambda: fitted(recipes["dp-apvi"].build(tiny_world()), privrl.Central(**BUDGET), unit="patient"),
    "dp-vapvi in groups": lambda: fitted(
        privrl.VAPVI(tiny_world(6).features, 6, split=True), privrl.Central(**BUDGET), key=KEY
    ),
    "dp-vapvi": lambda: fitted(privrl.VAPVI(tiny_world(6).features, 6), privrl.Central(rho=0.1), key=KEY),
    "sampled": lambda: fitted(
        privrl.FQI(3, 2, 4, steps=2, sampling=0.2), privrl.Central(**BUDGET, adjacency="add-remove"), key=KEY
    ),
    "laplace": lambda: fitted(privrl.FQI(3, 2, 4, steps=3), privrl.Central(2.0, mechanism="laplace"), key=KEY),
    "published": lambda: fitted(
        recipes["dp-apvi@paper"].build(tiny_world()), recipes["dp-apvi@paper"].privatizer(**BUDGET)
    ),
    "not private": lambda: fitted(recipes["apvi"].build(tiny_world()), privrl.NonPrivate(), key=KEY),
    "burnt and skipped": after_a_crash,
    "functional": of_a_function,
    "agent": by_an_agent,
    "by symbol": lambda: online("ldp-ucbvi", epsilon=2.0),
    "shuffled": lambda: online("shuffle-ucbvi", 1100),
    "local, published": lambda: online("ldp-ucrl-vtr@paper"),
    "online": lambda: online("dp-lsvi-ucb"),
    "online, published": lambda: online("private-ofu-lq@paper"),
    "lq": lambda: online("private-lq"),
}


@functools.cache
def made(name: str) -> Result:
    return MADE[name]()


def verdict(result: Result, **asked: Any) -> privrl.studies.results.certification.Verdict:
    return certify(result.certificate, result.policy, allow_non_private=True, **asked)


@pytest.mark.parametrize("name", MADE)
def test_an_honest_certificate_holds(name: str) -> None:
    result = made(name)
    assert verdict(result).problems == []
    assert verdict(result).words == "consistent, not authenticated"
    again = read_certificate(json.dumps(result.certificate.to_json()))
    assert certify(again, result.policy, allow_non_private=True).ok


@pytest.mark.parametrize("name", [name for name, recipe in recipes.items() if recipe.trust != "none"])
def test_every_recipe_before_anything_is_released(name: str) -> None:
    """No data needed: what is declared and calibrated is derived again, for every private recipe."""
    recipe = recipes[name]
    worlds = {"control": LQScalar(horizon=2), "functional": make("interval-walk", depth=3)}
    world = (worlds | {"measured": make("anticoagulation")}).get(recipe.family)
    learner = recipe.build(tiny_world() if world is None else world, 100)
    privatizer = recipe.privatizer(**BUDGET)
    if isinstance(learner, AbstractOfflineLearner):
        study = Study.offline(learner, privatizer, "patient")
    else:
        study = Study.online(learner, privatizer, 1100)
    certificate = study.certificate("seed")
    assert verdict(Result(POLICY, certificate)).problems == []


# ----------------------------------------------------------------------------------------- any number is changed

Path = tuple[str | int, ...]


def numbers(content: Any, path: Path = ()) -> Iterator[Path]:
    """Where the numbers of a certificate are."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from numbers(value, (*path, key))
    elif isinstance(content, list):
        for i, value in enumerate(content):
            yield from numbers(value, (*path, i))
    elif (isinstance(content, (int, float)) and not isinstance(content, bool)) or content == "inf":
        yield path


def at(content: Any, path: Path) -> Any:
    return functools.reduce(lambda inner, key: inner[key], path, content)


def no_claim_rests_on(content: Any, path: Path) -> bool:
    """Numbers that may be changed without changing what is claimed.

    - Settings (`study`): they claim nothing by themselves. Everything that follows from them is compared, so one that
      is accepted is one on which no event, bound, release, cost, delta or relation depends: a constant of utility,
      such as a bonus, or the number of people where as many blocks come out.
    - How often a stream, or a release that has no noise scale, was made: the certificate covers every declared release,
      made or not. (Of others there is one noise for each, and the number must fit.)
    - The sensitivity of what was released without noise: it is certified as infinite anyway.
    - `records_per_unit` of a table says, as `unit` does, what the unit is: only a signature binds it. (If people take
      part one after another, it decides the noise, and must fit.)
    """
    if path == ("records_per_unit",):
        return content["study"]["users"] is None
    if path[0] == "study":
        return True
    if path[0] == "releases" and path[2] == "counted":
        release = content["releases"][path[1]]
        return release["access"] != "rounds" or not release["noise"]
    return path[-1] == "sensitivity" and at(content, path[:-1])["scale"] == 0


CHANGES: list[Callable[[float], float]] = [
    lambda x: x / 100,
    lambda x: x * 0.5,
    lambda x: x * 2,
    lambda x: x * (1 + 1e-4),
    lambda x: x * (1 - 1e-4),
    lambda x: x + 1,
    lambda x: x - 1,
    lambda x: -x,
    lambda x: 0,
    lambda x: 99,
    lambda x: 0.001,
]


def accepted_after(name: str, path: Path, change: Callable[[float], float]) -> bool | None:
    """Whether the changed certificate is accepted; `None` where the change changes nothing."""
    result = made(name)
    content = copy.deepcopy(result.certificate.to_json())
    old = at(content, path)
    new = change(math.inf if old == "inf" else old)
    new = "inf" if math.isinf(new) else 0 if math.isnan(new) else int(new) if isinstance(old, int) else new
    if new == old:
        return None
    at(content, path[:-1])[path[-1]] = new
    try:
        certificate = read_certificate(json.dumps(content))
    except ValueError:
        return False
    return certify(certificate, result.policy, allow_non_private=True).ok


def check_change(name: str, path: Path, change: Callable[[float], float]) -> None:
    if accepted_after(name, path, change):
        assert no_claim_rests_on(made(name).certificate.to_json(), path), (name, path)


@given(name=st.sampled_from(list(MADE)), change=st.sampled_from(CHANGES), data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_number_is_changed_and_it_is_noticed(name: str, change: Callable[[float], float], data: Any) -> None:
    path = data.draw(st.sampled_from(list(numbers(made(name).certificate.to_json()))))
    check_change(name, path, change)


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_every_number_is_changed_in_every_way_and_it_is_noticed(name: str) -> None:
    for path in numbers(made(name).certificate.to_json()):
        for change in CHANGES:
            check_change(name, path, change)


def test_most_numbers_of_a_certificate_cannot_be_changed() -> None:
    """The exceptions are few: outside the settings, the count of a stream."""
    free = {
        path
        for path in numbers(made("online").certificate.to_json())
        if path[0] != "study" and accepted_after("online", path, lambda x: x - 1)
    }
    assert {(path[0], path[2]) for path in free} == {("releases", "counted")}


# ----------------------------------------------------------------------------- what was accepted before, by name


def altered(name: str, change: Callable[[dict[str, Any]], Any]) -> list[str]:
    content = copy.deepcopy(made(name).certificate.to_json())
    change(content)
    try:
        certificate = read_certificate(json.dumps(content))
    except ValueError as error:
        return [str(error)]
    return certify(certificate, made(name).policy, allow_non_private=True).problems


def cheaper(content: dict[str, Any], factor: float = 100) -> None:
    """Events, noise and cost that agree with each other, and with nothing else."""
    for event in content["events"]:
        event["parameter"] /= factor
    for release in content["releases"]:
        release["noise"], release["counted"] = [], 0
    told = privrl.Certificate.from_json(content)
    content |= cost_of(told.events, told.delta, told.adjacency)


def one_group_each(content: dict[str, Any]) -> None:
    for i, event in enumerate(content["events"]):
        event["group"] = str(i)
    cheaper(content, 1)


@pytest.mark.parametrize(
    "change",
    [
        cheaper,
        one_group_each,
        lambda c: [e.update(sampling=0.001) for e in c["events"]] and cheaper(c, 1),
        lambda c: c["events"].pop(),
        lambda c: c.update(events=c["events"][:1], releases=c["releases"][:1]),
        lambda c: c.update(releases=[]),
        lambda c: c.update(epsilon_zcdp=c["epsilon_zcdp"] / 2),
        lambda c: c.update(accountant="a better one"),
        lambda c: c.update(adjacency="add-remove"),
        lambda c: c.update(notion="local"),
        lambda c: c.update(learner="PEVI"),
        lambda c: c.update(claimed={"epsilon": 0.1, "delta": 1e-5, "source": "nobody"}),
        lambda c: c["releases"][0].update(counted=99),
        lambda c: c["releases"][0]["noise"][0].update(scale=-c["releases"][0]["noise"][0]["scale"]),
        lambda c: c["releases"][0]["noise"][0].update(times=0),
        lambda c: c.update(records_per_unit=None),
        lambda c: c.update(block_distance=1),
        lambda c: c.update(messages_per_user=1),
        lambda c: c.update(group_shares={"learn": 0.5}),
        lambda c: c.update(relation="function"),
        lambda c: c["study"]["privatizer"].update(adjacency="add-remove"),
        lambda c: c["study"]["privatizer"].update(epsilon=0.02),
        lambda c: c["study"]["learner"]["settings"].update(counting="per-stage"),
        lambda c: c["study"].update(users=10),
        lambda c: c.update(study={}),
        lambda c: c.update(study=None),
        lambda c: c["study"].pop("learner"),
        lambda c: c.update(opened="yesterday"),
        lambda c: c.update(result_sha256=""),
        lambda c: c.update(result_sha256="0" * 64),
    ],
)
def test_a_certificate_that_contradicts_itself_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    assert altered("dp-apvi", lambda c: None) == []
    assert altered("dp-apvi", change)


@pytest.mark.parametrize("change", [{"records_per_unit": 5}, {"records_per_unit": None}, {"block_distance": 2}])
def test_how_often_a_person_counts_decides_the_noise_of_a_stream(change: dict[str, Any]) -> None:
    assert altered("online", lambda c: None) == []
    assert altered("online", lambda c: c.update(change))


def test_a_pool_may_trade_and_not_grow() -> None:
    """Shares may be moved within a pool; what was calibrated for it stays."""
    name = "burnt and skipped"
    events = [event["name"] for event in made(name).certificate.to_json()["events"]]
    assert len(set(events)) < len(events)  # one name has several parameters
    for i in range(len(events)):
        for factor in (0.99, 1.01):
            assert not accepted_after(name, ("events", i, "parameter"), functools.partial(operator.mul, factor))

    def cheaper_alike(content: dict[str, Any], factor: float) -> None:
        """Events, noise distributions and cost that agree with each other."""
        for event in content["events"]:
            event["parameter"] *= factor
        for noise in (noise for release in content["releases"] for noise in release["noise"]):
            noise["scale"] /= factor
        told = privrl.Certificate.from_json(content)
        content |= cost_of(told.events, told.delta, told.adjacency)

    assert altered(name, functools.partial(cheaper_alike, factor=1.0)) == []
    for factor in (0.5, 0.999, 1.001):
        assert altered(name, functools.partial(cheaper_alike, factor=factor)) != []
    for count in ("burnt", "skipped"):
        assert not accepted_after(name, ("releases", 0, count), lambda x: x + 1)
        assert not accepted_after("dp-apvi", ("releases", 0, count), lambda x: x + 1)


# ------------------------------------------------------------------------------- the policy, keys, and what is asked


def test_the_certificate_names_its_policy() -> None:
    result = made("dp-apvi")
    other = fitted(recipes["apvi"].build(tiny_world()), privrl.NonPrivate(), key=KEY)
    assert not certify(result.certificate, other.policy).ok
    assert [check.name for check in certify(result.certificate, other.policy).checks if not check.ok] == ["policy"]


def test_the_policy_is_the_same_after_saving(tmp_path: Any) -> None:
    for name in ("dp-apvi", "lq", "functional"):
        result = made(name)
        loaded = Result.load(result.save(tmp_path / name.replace(" ", "-")))
        assert replace(loaded.certificate, files={}) == read_certificate(json.dumps(result.certificate.to_json()))
        assert verdict(loaded).ok
        unnamed = replace(result.certificate, result_sha256="")
        loose = Result.load(replace(result, certificate=unnamed).save(tmp_path / "bound"))
        assert verdict(loose).ok  # a new result is bound when it is made
        content = json.loads((tmp_path / "bound" / "certificate.json").read_text())
        (tmp_path / "bound" / "certificate.json").write_text(json.dumps(content | {"result_sha256": ""}))
        assert not verdict(Result.load(tmp_path / "bound")).ok  # and never when it is read


def test_signatures() -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    result = made("dp-apvi")
    signed = result.signed(key)
    assert verdict(signed, public_key=key.public_key()).words == "consistent and authenticated"
    assert verdict(signed).words == "consistent, not authenticated"
    assert not verdict(signed, public_key=other.public_key()).ok
    assert not verdict(result, public_key=key.public_key()).ok
    renamed = replace(signed, certificate=replace(signed.certificate, unit="hospital"))
    assert verdict(renamed).ok  # only a signature binds what the unit is called
    assert not verdict(renamed, public_key=key.public_key()).ok


class Stranger(AbstractOfflineLearner):
    """Somebody else's learner."""

    horizon: int = eqx.field(static=True)

    @property
    def space(self) -> tuple[int, int]:
        return 3, 2

    def bounds(self) -> dict[str, Any]:
        return {"horizon": self.horizon}

    def declare(self) -> tuple[Declared, ...]:
        return (Declared("visits"),)

    def fit(self, ask: Any) -> Solution:
        ask("visits", privrl.statistics.VisitCounts(3, 2, self.horizon, "pooled", None, None))
        return Solution(TabularPolicy.uniform(self.horizon, 3, 2))


@pytest.mark.parametrize(
    "result",
    [
        lambda: fitted(Stranger(4), privrl.Central(**BUDGET), key=KEY),
        lambda: fitted(
            recipes["dp-apvi"].build(tiny_world()),
            Published(lambda declared, budget: {d.name: 0.1 for d in declared}, "somebody", rho=0.1),
            key=KEY,
        ),
    ],
)
def test_what_cannot_be_derived_needs_a_key(result: Callable[[], Result]) -> None:
    key = Ed25519PrivateKey.generate()
    made = result()
    assert [check.name for check in verdict(made).checks if not check.ok] == ["settings"]
    assert "--public-key" in verdict(made).problems[0]
    assert verdict(made.signed(key), public_key=key.public_key()).ok
    broken = replace(made, certificate=replace(made.certificate, epsilon=0.1)).signed(key)
    assert not verdict(broken, public_key=key.public_key()).ok  # signed nonsense is nonsense


def test_what_is_asked_of_a_certificate() -> None:
    result = made("dp-apvi")
    assert certify(result.certificate, result.policy, max_epsilon=2.0, max_delta=1e-5, unit="patient").ok
    for asked, name in (
        ({"max_epsilon": 1.9}, "max-epsilon"),
        ({"max_delta": 1e-6}, "max-delta"),
        ({"unit": "user"}, "unit"),
        ({"adjacency": "add-remove"}, "adjacency"),
    ):
        found = certify(result.certificate, result.policy, **asked)
        assert [check.name for check in found.checks if not check.ok] == [name]
    plain = made("not private")
    assert [c.name for c in certify(plain.certificate, plain.policy).checks if not c.ok] == ["private"]
    assert not certify(plain.certificate, plain.policy, allow_non_private=True, max_epsilon=1e9).ok


def test_a_shuffler_needs_its_batches() -> None:
    assert made("shuffled").certificate.rho is None
    assert altered("shuffled", lambda c: c["events"][0].update(batch=2000))
    assert altered("shuffled", lambda c: c["study"].update(users=600))  # its last block would be too small


def test_a_simulation_protects_nobody() -> None:
    result = made("burnt and skipped")
    verdict = certify(result.certificate, result.policy)
    assert [check.name for check in verdict.checks if not check.ok] == ["private"]


def test_what_a_file_says_is_printed_on_its_own_lines() -> None:
    certificate = dataclasses.replace(made("dp-apvi").certificate, notes=("\nepsilon = 0.01\x1b[8m",))
    assert "\x1b" not in str(certificate) and "\nepsilon = 0.01" not in str(certificate)


@pytest.mark.parametrize("bad", ["text", None, {}, 10**400], ids=["text", "nothing", "an object", "huge"])
def test_no_certificate_makes_certify_raise(bad: Any) -> None:
    result = made("dp-apvi")
    assert not certify(dataclasses.replace(result.certificate, epsilon=bad), result.policy, max_epsilon=1.0).ok


def test_recorded_bounds_do_not_replace_those_of_the_learner() -> None:
    result = made("dp-apvi")
    content = result.certificate.to_json()
    content["bounds"]["horizon"] = 10**6
    assert not certify(privrl.Certificate.from_json(content), result.policy, allow_non_private=True).ok


def test_bounds_that_no_learner_enforces_are_refused() -> None:
    result = made("dp-apvi")
    content = result.certificate.to_json()
    content["bounds"] |= {"dose": 3}
    assert not certify(privrl.Certificate.from_json(content), result.policy, allow_non_private=True).ok


def test_no_decision_depends_on_the_words_of_a_certificate() -> None:
    """Words are rendered from typed fields: nothing in the package reads a bound by its name, or searches notes."""
    package = pathlib.Path(privrl.__file__).parent
    sought = re.compile(
        r"certificate\.(bounds|limits|notes)(\.get\(|\[)|(?<!for note )in \w*\.?certificate\.(notes|neighbours)\b"
    )
    found = [path.name for path in package.rglob("*.py") if sought.search(path.read_text())]
    assert found == []


@pytest.mark.parametrize("name", MADE)
def test_words_about_a_person_follow_from_typed_fields(name: str) -> None:
    certificate = made(name).certificate
    counted = replace(certificate, records_per_unit=7, block_distance=3, messages_per_user=5)
    assert "records per unit: 7" in str(counted) and "to the next: 3" in str(counted)
    assert "messages per user: 5" in str(counted)
    assert not {"records per unit", "messages per user"} & set(certificate.bounds)


def whole_numbers(content: Any, path: Path = ()) -> Iterator[Path]:
    """Where the whole numbers of recorded settings are, apart from those in arrays."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key not in ("array", "shape"):
                yield from whole_numbers(value, (*path, key))
    elif isinstance(content, list):
        for i, value in enumerate(content):
            yield from whole_numbers(value, (*path, i))
    elif type(content) is int:
        yield path


@pytest.mark.parametrize("name", ["dp-apvi", "agent", "shuffled", "online", "lq", "local, published"])
def test_no_number_of_a_file_takes_long_to_check(name: str) -> None:
    """Before, a schedule for 10^15 people never ended, and a size of 10^15 ended the process."""
    honest = made(name).certificate.to_json()
    for path in (path for path in whole_numbers(honest) if path[0] in ("study", "events", "releases")):
        content = copy.deepcopy(honest)
        at(content, path[:-1])[path[-1]] = 10**15
        began = time.process_time()
        try:
            certify(read_certificate(json.dumps(content)), made(name).policy, allow_non_private=True)
        except ValueError as error:
            assert "The certificate is malformed" in str(error), path  # noqa: PT017
        assert time.process_time() - began < 10.0, path
