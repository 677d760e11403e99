"""Empirical epsilon: run a recipe's mechanism in two neighbouring worlds, and count how well they can be told apart.

The worlds differ in one person. The two records of this person are the worst pair that a search over records finds
for everything that the recipe releases. A threshold on the likelihood ratio is chosen on one half of the runs, and
right and wrong guesses are counted on the other half.
"""

import math
import time
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from privrl.audit.attacks.attack import AbstractAttack, noise_weight
from privrl.audit.attacks.channel_attack import ChannelAttack, Pattern, pattern_weight
from privrl.audit.attacks.curator_attack import CuratorAttack
from privrl.audit.attacks.local_attacks import ReportAttack, ShuffleAttack, find_farthest_batch, find_farthest_report
from privrl.audit.audit_report import AuditReport
from privrl.audit.bounds import bound_epsilon
from privrl.audit.sensitivity import Norm, climb, find_farthest, search_sensitivities
from privrl.audit.surface.neighbouring_records import AnyRecords, make_record_pool, pick_records
from privrl.audit.surface.queries import Query
from privrl.audit.surface.recorded_fit import FitTranscript, Skipped, record_fit
from privrl.audit.surface.recorded_run import RunTranscript, record_run
from privrl.audit.worlds import AuditedWorld, make_data, prepare_audit
from privrl.contracts.learner import AbstractOfflineLearner, AbstractOnlineLearner
from privrl.envs.base import Env
from privrl.envs.patients.patient_world import AbstractPatients
from privrl.privacy.accounting.composition import epsilon_of, mu_of
from privrl.privacy.accounting.events import Event
from privrl.privacy.trust.local_channels import AbstractLocalChannel
from privrl.privacy.trust.symbol_channels import SymbolChannel
from privrl.recipes.recipe import Recipe
from privrl.studies.study import participation_of

_PEOPLE = 5_000  # in the table of the recorded fit: enough for queries that depend on well-estimated releases
_FIXED = "the queries are those of one recorded {}; the shipped code drew the noise anew in every run"
_COIN = "the audit drew the Poisson samples, with the declared probability"


def lower_bound(
    recipe: str | Recipe,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    trials: int = 100_000,
    key: PRNGKeyArray,
    env: AuditedWorld | None = None,
    confidence: float = 0.95,
    rounds: int = 12,
    max_episodes_per_unit: int = 1,
    min_block_distance: int = 0,
    open_ended: bool = False,
) -> AuditReport:
    """Attack a recipe, and prove a lower bound on its epsilon.

    Arguments:
        recipe: a registered recipe, or its name.
        epsilon, delta, rho: the budget, as for the recipe; epsilon = 1 and delta = 1e-5 if all are left out. A
            recipe without privacy takes no budget.
        trials: runs of each of the two worlds. 100,000 runs take a few seconds and prove more than half of a true
            epsilon of 1; 2,000 reveal only gross faults.
        key: the randomness of the whole audit, which can be replayed.
        env: the world; by default a tiny one that suits the recipe.
        confidence: the probability with which the bound holds.
        rounds: how many rounds the search for the worst pair climbs.
        max_episodes_per_unit, min_block_distance: for recipes that learn while people take part, as for `run`. The
            worlds then differ in all episodes of one person, who returns as often and as soon as the limits allow.
        open_ended: whether to attack a study without a known end, whose epochs are as short as possible.

    **Formal guarantee.** The bound holds for any recipe, because the threshold is fixed before the runs that are
    counted, and these are independent. A recipe whose guarantee is true is called broken with probability at most 1
    - `confidence`.
    """
    started = time.perf_counter()
    if trials < 2:
        raise ValueError(
            f"`trials` is {trials}; give at least 2, because one half chooses a threshold and the other is counted."
        )
    recipe, privatizer, world, learner = prepare_audit(recipe, epsilon, delta, rho, env)
    search_key, record_key, run_key = jax.random.split(key, 3)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(search_key)))
    records = make_record_pool(world, rng)
    if isinstance(learner, AbstractOnlineLearner):
        often = participation_of(max_episodes_per_unit, min_block_distance)
        run = record_run(world, learner, privatizer, record_key, often, open_ended=open_ended)
        attack, asked, events = _online(run, records, rng, rounds)
        notes = [_FIXED.format("run")]
    elif max_episodes_per_unit > 1 or open_ended:
        raise ValueError(
            f"`{recipe.name}` learns from a table. `max_episodes_per_unit` and `open_ended` apply to recipes that "
            "learn while people take part; leave them out."
        )
    else:
        assert isinstance(world, Env | AbstractPatients) and isinstance(learner, AbstractOfflineLearner)
        fit = record_fit(make_data(world, learner, _PEOPLE, record_key), learner, privatizer, record_key)
        attack, asked, events = _offline(fit, records, rng, rounds)
        notes = [_FIXED.format("fit"), *([_COIN] if any(e.sampling < 1 for e in events) else [])]
        if learner.neighbours:
            notes.append(f"the worlds are {learner.neighbours}; they contain no people")
    norms: tuple[Norm, ...] = ("l1", "l2") if any(e.mechanism == "laplace" for e in events) else ("l2",)
    sensitivities = search_sensitivities(asked, records, rng, rounds=rounds, norms=norms) if asked else ()
    delta = privatizer.reported_delta
    exact = epsilon_of(events, delta, adjacency=privatizer.adjacency)
    promised = {"epsilon": getattr(privatizer, "epsilon", None)} | dict(privatizer.claimed or {})
    claimed = exact if promised["epsilon"] is None else float(promised["epsilon"])
    mu_exact = mu_of(events)
    scores = attack.scores(run_key, trials)
    gaussian = mu_exact is not None and math.isfinite(mu_exact)
    return AuditReport(
        recipe=recipe.name,
        epsilon_claimed=claimed,
        epsilon_exact=exact,
        epsilon_lower=bound_epsilon(scores, delta, confidence, gaussian=gaussian),
        delta=delta,
        trials=trials,
        confidence=confidence,
        bound="Gaussian DP" if gaussian else "Clopper-Pearson",
        mu=attack.mu,
        mu_exact=mu_exact,
        loss_mean=float(scores[1].mean() - scores[0].mean()) / 2,
        loss_variance=float(scores.var(axis=1).mean()),
        sensitivities=sensitivities,
        notes=tuple(notes),
        seconds=time.perf_counter() - started,
    )


def _offline(
    fit: FitTranscript, records: AnyRecords, rng: np.random.Generator, rounds: int
) -> tuple[AbstractAttack, tuple[Query, ...], tuple[Event, ...]]:
    """Attack the worst pair of records, in the group of people in which it is worst."""
    best: tuple[float, AnyRecords, str | None] = (-1.0, records, None)
    for group in fit.ledger().groups or (None,):
        if scope := [(step, noise_weight(step.scale)) for step in fit.queries if fit.concerns(step, group)]:
            best = max(best, (*_worst_pair(scope, records, rng, rounds), group), key=lambda found: found[0])
    _, pair, group = best
    answers = tuple(None if isinstance(step, Skipped) else step.answers(pair) for step in fit.steps)
    return CuratorAttack(fit, answers, group), fit.queries, fit.events


def _online(
    run: RunTranscript, records: AnyRecords, rng: np.random.Generator, rounds: int
) -> tuple[AbstractAttack, tuple[Query, ...], tuple[Event, ...]]:
    """Attack the worst pair of records, in the blocks in which it is worst."""
    events = run.ledger.events()
    channel = next(iter(run.channels.values()))
    if isinstance(channel, SymbolChannel):
        (event,) = events
        if event.batch is not None:
            return ShuffleAttack(channel, find_farthest_batch(channel, run.plans[0], records, event.batch)), (), events
        i, j, index = find_farthest_report(channel, run.plans[0], records)
        times = run.ledger.participation.times
        return ReportAttack(run, pick_records(records, np.array([i, j])), index, times), (), events
    local = isinstance(channel, AbstractLocalChannel)
    best: tuple[float, AnyRecords, Pattern] = (-1.0, records, (0,))
    for pattern in [(0,)] if local else _patterns(run):
        scope = [(step, pattern_weight(run, step, pattern)) for step in run.queries_about(pattern[0])]
        best = max(best, (*_worst_pair(scope, records, rng, rounds), pattern), key=lambda found: found[0])
    _, pair, pattern = best
    times = run.ledger.participation.times
    attack = ReportAttack(run, pair, 0, times) if local else ChannelAttack(run, (pattern, pattern), pair)
    return attack, run.queries_about(pattern[0]), events


def _patterns(run: RunTranscript) -> list[Pattern]:
    """List the blocks of a person who returns as often and as soon as the limits allow, from each block on.

    Patterns with one episode per block are included, so that some of them contain both sides of the end of an
    epoch.
    """
    often, blocks = run.ledger.participation, len(run.ends)
    apart = {often.distance, max(often.distance, 1)}
    later = [tuple(first + i * d for i in range(often.times)) for d in sorted(apart) for first in range(blocks)]
    return [tuple(block for block in pattern if block < blocks) for pattern in later]


def _worst_pair(
    asked: Sequence[tuple[Query, float]], records: AnyRecords, rng: np.random.Generator, rounds: int
) -> tuple[float, AnyRecords]:
    """Find the two records that are furthest apart in all queries, and their distance in units of the noise."""

    def answers(some: AnyRecords) -> Float[np.ndarray, "N D"]:
        return np.concatenate([(w if math.isfinite(w) else 1.0) * step.answers(some) for step, w in asked], axis=1)

    i, j, _ = find_farthest(answers(records))
    pair = climb(answers, pick_records(records, np.array([i, j])), rng, rounds)
    return float(np.linalg.norm(np.diff(answers(pair), axis=0))), pair
