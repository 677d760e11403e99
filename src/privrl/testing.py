"""What every learner owes, checked for learners of any author: `check_learner`, like scikit-learn's `check_estimator`.

A learner that passes reads people only through declared releases, equals its non-private self without noise, repeats
itself from the same key, and keeps every declared sensitivity for records made to break it.
"""

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from privrl.audit.sensitivity import search_sensitivities
from privrl.audit.surface.adversarial_records import adversarial_lq_records, adversarial_records
from privrl.audit.surface.neighbouring_records import AnyRecords, make_record_pool
from privrl.audit.surface.queries import Query
from privrl.audit.surface.recorded_fit import record_fit
from privrl.audit.surface.recorded_run import record_run
from privrl.audit.worlds import AuditedWorld, choose_world, tiny_world
from privrl.contracts.learner import AbstractLearner, AbstractOfflineLearner, AbstractOnlineLearner
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.trust.privatizers import Central, Local, NonPrivate, PairingError
from privrl.recipes.recipe import Recipe
from privrl.studies.offline.fitting import fit
from privrl.studies.simulation.sampled_tables import sampled
from privrl.studies.simulation.simulating import run

_PEOPLE = 60


class ContractError(AssertionError):
    """A learner breaks a promise that certificates rest on, or that its users rely on."""


def check_learner(
    learner: AbstractLearner | Recipe, world: AuditedWorld | None = None, *, epsilon: float = 2.0, delta: float = 1e-5
) -> None:
    """Checks a learner, or that of a recipe, in a small world; takes seconds to a minute.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=3)
    >>> privrl.testing.check_learner(privrl.UCBVI(world.rewards, 3))

    Arguments:
        learner: an offline or online learner. Without `world`, an online learner must have a field `horizon`, and
            either `num_states` and `num_actions` or `rewards` of shape `[G, S, A]`.
        world: where it learns. By default a random world of the learner's sizes, or one that the recipe accepts. A
            learner on measurements needs one with its columns: `privrl.envs.make("anticoagulation", horizon=2)`.
        epsilon, delta: the budget.

    Raises:
        ContractError: the learner breaks its contract; the message says where.
        ValueError: there is no small world for it; give `world`.
    """
    if isinstance(learner, Recipe):
        world, learner = choose_world(learner, world)
    if world is None:
        world = _world_of(learner)
    if isinstance(learner, AbstractOnlineLearner) and isinstance(world, Env | LQEnv):
        check_online(learner, world, epsilon, delta)
    elif isinstance(learner, AbstractOfflineLearner) and isinstance(world, Env | AbstractPatients):
        check_offline(learner, world, epsilon, delta)
    else:
        raise ValueError(f"A `{type(learner).__name__}` does not learn in a `{type(world).__name__}`.")


def check_offline(learner: AbstractOfflineLearner, world: Env | AbstractPatients, epsilon: float, delta: float) -> None:
    """Checks a learner that learns from records."""
    key, private = jax.random.key(11), Central(epsilon=epsilon, delta=delta)
    data = sampled(world, 3 * _PEOPLE, jax.random.key(1))
    exact = fit(data, learner, NonPrivate(), key=key)
    noiseless = fit(data, learner, Central(epsilon=math.inf), key=key)
    _require(_equal(exact.policy, noiseless.policy), "Without noise it differs from its non-private self.")
    first, again = (fit(data, learner, private, key=key) for _ in range(2))
    _require(_equal(first.policy, again.policy), "The same key gives another policy: it draws random numbers.")
    check_certificate(first.certificate, epsilon, delta, "central")
    if isinstance(world, AbstractPatients):
        records = make_record_pool(world, np.random.default_rng(0))
    else:
        records = adversarial_records(world.horizon, world.num_states, world.num_actions)
    check_sensitivities(list(record_fit(data, learner, private, key).queries), records)
    _require_refused(lambda: fit(data, learner, Local(epsilon=epsilon, delta=delta)))


def check_online(learner: AbstractOnlineLearner, world: Env | LQEnv, epsilon: float, delta: float) -> None:
    """Checks a learner that plans while people take part."""
    key, private = jax.random.key(12), Central(epsilon=epsilon, delta=delta)

    def simulated(privatizer: Central | NonPrivate) -> np.ndarray:
        return run(world, learner, privatizer, episodes=_PEOPLE, seeds=2, key=key, flow=False).block_regret

    exact, noiseless = simulated(NonPrivate()), simulated(Central(epsilon=math.inf))
    _require(np.allclose(exact, noiseless, atol=1e-8), "Without noise it differs from its non-private self.")
    first = run(world, learner, private, episodes=_PEOPLE, seeds=2, key=key, flow=False)
    _require(np.array_equal(first.block_regret, simulated(private)), "The same key gives another regret.")
    _require(bool((first.block_regret > -1e-12).all()), "Its regret is negative: its policies are not policies.")
    check_certificate(first.certificate, epsilon, delta, "joint")
    recorded = record_run(world, learner, private, key)
    asked = [one for block in {0, len(recorded.ends) - 1} for one in recorded.queries_about(block)]
    if isinstance(world, LQEnv):
        records: AnyRecords = adversarial_lq_records(world.horizon, world.task.state_dim, world.task.input_dim)
    else:
        records = adversarial_records(world.horizon, world.num_states, world.num_actions)
    check_sensitivities(asked, records)
    if any(one.access == "rounds" for one in learner.declare(3)):
        local = Local(epsilon=epsilon, delta=delta)
        _require_refused(lambda: run(world, learner, local, episodes=_PEOPLE, key=key))


def check_certificate(certificate: Certificate, epsilon: float, delta: float, notion: str) -> None:
    """Checks that a certificate states this budget, adds up, and counts no more releases than were declared."""
    _require(certificate.notion == notion, f"Its certificate says {certificate.notion!r}, not {notion!r}.")
    _require(certificate.delta == delta, f"Its certificate has `delta` {certificate.delta:g}, not {delta:g}.")
    _require(
        epsilon * 0.999 <= certificate.epsilon <= epsilon * (1 + 1e-9),
        f"Its certificate has `epsilon` {certificate.epsilon:g} for a budget of {epsilon:g}.",
    )
    _require(
        math.isclose(certificate.recomputed(), certificate.epsilon, rel_tol=1e-12),
        "Its certificate does not add up.",
    )
    _require(
        all(release["counted"] <= release["declared"] for release in certificate.releases),
        "It makes more releases than it declares.",
    )
    _require(sum(release["counted"] for release in certificate.releases) > 0, "It makes no release.")


def check_sensitivities(asked: Sequence[Query], records: AnyRecords) -> None:
    """Checks that no pair of records breaks a declared sensitivity, with the plans and queries of a recorded run."""
    _require(bool(asked), "It asks nothing about people.")
    found = search_sensitivities(asked, records, np.random.default_rng(0), rounds=0, norms=("l2", "l1"))
    _require({one.release for one in found} == {one.name for one in asked}, "A release was not searched.")
    for one in found:
        _require(
            not one.broken,
            f"The release `{one.release}` breaks its declared sensitivity: two records are further apart than "
            "its statistic says.",
        )


def _world_of(learner: AbstractLearner) -> Env:
    """A random world of the learner's sizes."""
    if isinstance(learner, AbstractOfflineLearner):
        space: tuple[object, ...] = () if learner.measurements else learner.space
    elif (rewards := getattr(learner, "rewards", None)) is not None:
        space = rewards.shape[1:]
    else:
        space = getattr(learner, "num_states", None), getattr(learner, "num_actions", None)
    sizes = [size for size in (getattr(learner, "horizon", None), *space) if isinstance(size, int)]
    if len(sizes) < 3:
        raise ValueError(
            f"`{type(learner).__name__}` learns from measurements, or has no fields `num_states`, `num_actions` and "
            "`horizon`, so no small world can be made for it. Give `world`."
        )
    return tiny_world(*sizes)


def _equal(left: object, right: object) -> bool:
    leaves = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in leaves)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ContractError(what)


def _require_refused(study: Callable[[], object]) -> None:
    try:
        study()
    except PairingError:
        return
    raise ContractError("A learner that asks about people who already left runs without a trusted server.")
