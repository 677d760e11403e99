"""Attacks on the protocol of a recipe: exact relations, ends of episodes, returns, crashes, and the order of releases.

Noise of the right size is not enough if anything else depends on people: a combination of released numbers without
noise, the block that a person's data is summed in, the effect of a restart, the number of releases. These attacks
run the shipped code and compare. They need no repeated trials.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from privrl.audit.findings import Finding
from privrl.audit.protocol import crashes as _crashes
from privrl.audit.protocol import episode_ends as _stays
from privrl.audit.protocol import relations as _relations
from privrl.audit.protocol import return_visits as _coming_back
from privrl.audit.protocol import sequences as _sequences
from privrl.audit.surface.neighbouring_records import join_records, make_record_pool
from privrl.audit.surface.recorded_fit import FitTranscript, record_fit
from privrl.audit.surface.recorded_people import GroupRecorder
from privrl.audit.surface.recorded_run import RunTranscript, record_run
from privrl.audit.worlds import AuditedWorld, make_data, prepare_audit
from privrl.contracts.learner import AbstractOfflineLearner, AbstractOnlineLearner
from privrl.data.episodes import Episodes
from privrl.data.reward_function import RewardFunction
from privrl.envs.base import Env
from privrl.envs.lq_worlds import LQEnv
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.mdp.types import Trajectory
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central
from privrl.recipes.recipe import Recipe
from privrl.studies.live.agent import Agent, Controller
from privrl.studies.offline.curated_records import Records, SecretFunction
from privrl.studies.simulation.sampled_tables import table_of

_PEOPLE = 120  # in the table
_STEPS = 24  # queries that are repeated after every crash
_LARGEST_RUN = 200  # people in the runs of agents, at most
_VISITS = 3  # episodes per person, if people may return


def protocol_attacks(
    recipe: str | Recipe,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    key: PRNGKeyArray,
    env: AuditedWorld | None = None,
) -> tuple[Finding, ...]:
    """Attack how a recipe makes its releases; the budget is given as for `lower_bound`.

    Returns:
        One finding for each attack; one that does not apply says why. None for a recipe without privacy, which hides
        nothing.
    """
    recipe, privatizer, world, learner = prepare_audit(recipe, epsilon, delta, rho, env)
    if recipe.trust == "none":
        return ()
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    records = make_record_pool(world, rng, limit=400)
    if isinstance(learner, AbstractOnlineLearner):
        assert not isinstance(world, AbstractPatients)
        run = record_run(world, learner, privatizer, key)
        found = (
            _relations.attack_run(run, records, rng),
            _sequences.attack_run(run, world),
            *_agents(run, world, key, rng),
        )
        why = "people randomise their answers themselves, and no released noise could cancel"
        return tuple(one if one.tried or one.not_run else dataclasses.replace(one, not_run=why) for one in found)
    assert isinstance(world, Env | AbstractPatients) and isinstance(learner, AbstractOfflineLearner)
    data = make_data(world, learner, _PEOPLE, key)
    if isinstance(data, RewardFunction):
        return _function(data, record_fit(data, learner, privatizer, key), rng)
    assert isinstance(records, Trajectory)
    return _tables(world, learner, privatizer, records, key, rng)


def _tables(
    world: Env | AbstractPatients,
    learner: AbstractOfflineLearner,
    privatizer: AbstractPrivatizer,
    records: Trajectory,
    key: PRNGKeyArray,
    rng: np.random.Generator,
) -> tuple[Finding, ...]:
    """Run all attacks on a fit."""
    practice: Any = world.behaviour_policy()
    people = jax.tree.map(np.asarray, world.sample(practice, _PEOPLE, key))
    extra = jax.tree.map(np.asarray, world.sample(practice, 1, jax.random.fold_in(key, 1)))

    def table(rows: Trajectory, first: int = 0) -> Episodes:
        ids = [str(first + i) for i in range(len(rows.length))]
        return table_of(world, rows, units=ids)

    if isinstance(world, AbstractPatients):  # other people of the same world, because tables refuse malformed ones
        records = world.sample(practice, _PEOPLE, jax.random.fold_in(key, 2))
    data = table(people)
    fit = record_fit(data, learner, privatizer, key)
    more = table(join_records(extra, people), -1)
    groups: list[list[set[str]]] = [[], [], []]
    listening = [
        GroupRecorder(Records(one), [str(first + i) for i in range(one.num_units)], members)
        for (one, first), members in zip(((data, 0), (data, 0), (more, -1)), groups, strict=True)
    ]
    asked = dataclasses.replace(fit, steps=fit.steps[:_STEPS])
    first, same, other = (_crashes.Attempt(asked, one) for one in listening)
    again = [("started again", same), ("one person inserted at the top", other)]
    again.append(("nothing skipped", dataclasses.replace(same, skips=False)))
    replaced = table(_sequences.replace_first(people, records, rng))
    tables = [("one person more", more), ("one person replaced", replaced)]
    crashes = _crashes.attack_fit(first, again, rng, groups, data, tables)
    return (
        _relations.attack_fit(fit, Records(data), rng),
        _sequences.attack_fit(fit, people, table, records, rng),
        crashes,
    )


def _function(data: RewardFunction, fit: FitTranscript, rng: np.random.Generator) -> tuple[Finding, ...]:
    """Run the attacks that apply to a secret function, without people."""
    once = _crashes.Attempt(fit, SecretFunction(data))
    other = RewardFunction(np.full_like(np.asarray(data.values), 0.25))
    crashes = _crashes.attack_fit(once, [("started again", once)], rng, [], data, [("another function", other)])
    return _relations.attack_fit(fit, SecretFunction(data), rng), crashes


def _agents(run: RunTranscript, world: Env | LQEnv, key: PRNGKeyArray, rng: np.random.Generator) -> tuple[Finding, ...]:
    """Run the attacks on agents, or say why the learner cannot be used with one."""
    learner, privatizer = run.learner, run.privatizer
    rounds = any(declared.access == "rounds" for declared in learner.declare(len(run.ends)))
    runs = (tuple(int(end) for end in learner.blocks(people)) for people in range(2, _LARGEST_RUN))
    ends = next((ends for ends in runs if len(ends) >= 3), None)
    why = ""
    if not isinstance(privatizer, Central):
        why = "an agent needs a trusted curator with its own noise"
    elif rounds:
        why = "an agent cannot ask new queries about people who left"
    elif ends is None:
        why = f"the learner has fewer than three blocks with {_LARGEST_RUN} people"
    if why or ends is None:
        attacks = (_stays.LENGTH_OF_STAY, _crashes.CRASHES, _coming_back.COMING_BACK)
        return tuple(Finding(attack, 0, not_run=why) for attack in attacks)
    kind = Controller if isinstance(world, LQEnv) else Agent
    people = ends[-1]

    def live(store: ReleaseStore, clock: Callable[[], float]) -> Agent | Controller:
        return kind(learner, privatizer, num_users=people, store=store, patience=_stays.PATIENCE, clock=clock, key=key)

    def ordered(store: ReleaseStore) -> Agent | Controller:
        return kind(learner, privatizer, num_users=people, store=store, fixed_order=True, key=key)

    policy = run.plans[0].policy
    keys = jax.random.split(key, people)
    records = jax.tree.map(np.asarray, jax.jit(jax.vmap(world.rollout, in_axes=(None, 0)))(policy, keys))
    stays, _ = _stays.attack_episode_ends(live, records, ends)

    def returning(store: ReleaseStore, clock: Callable[[], float]) -> Agent | Controller:
        return kind(
            learner,
            privatizer,
            num_users=people,
            store=store,
            patience=_stays.PATIENCE,
            clock=clock,
            key=key,
            max_episodes_per_unit=_VISITS,
        )

    crashes, returns = _crashes.attack_agent(ordered, records, people, rng), _coming_back.attack_return_visits
    return stays, crashes, returns(returning, records, ends, _VISITS)
