"""`evaluate`: people who were held out, and a policy from anywhere, in; how it compares with practice, out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jaxtyping import Array, ArrayLike, Float

from privrl.data.dataset import AbstractDataset
from privrl.evaluation.comparing import AbstractEvaluator
from privrl.evaluation.evaluator import Evaluator, check_markov
from privrl.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.executors.executor import AbstractExecutor
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.rule_file import RulesLike
from privrl.mdp.rules import rules_from_arrays
from privrl.privacy.shared_budget import AnySharedBudget
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.recipes.pairing import BudgetArguments, central_of
from privrl.studies.keys import KeyLike, optional_key
from privrl.studies.offline.enough_people import check_evaluation, check_number
from privrl.studies.offline.policies import AnyPolicy, advice_of, load_policy, policy_arrays, strength_of, values_of
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.offline.table_fit import AnySchema, Paths, open_people, open_store
from privrl.studies.offline.task import Ends, RuleArguments, assumption_of, read_probabilities
from privrl.studies.results.binding import policy_sha256
from privrl.studies.results.certified_evaluation import CertifiedEvaluation
from privrl.studies.results.finishing import Finish, SigningKey, warn_of_delta
from privrl.studies.results.result import Result

_ADDS_UP = (
    "this covers the evaluation alone: a person who is also among the people that the policy was learnt from is "
    "covered by both certificates together, whose costs add up"
)
_NO_MODEL = (
    "The whole advice is not modelled: a model needs values of states from the people who were learnt from. Recipes "
    "that give values (such as `dp-tdfp` and `dp-tap`) save them with their result; this policy was saved without them."
)


def evaluate(
    held: Paths | AbstractDataset,
    policy: AnyPolicy,
    privatizer: AbstractPrivatizer | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    schema: AnySchema | None = None,
    public_key: Ed25519PublicKey | None = None,
    practice: Float[ArrayLike, "S A"] | str | Path | None = None,
    return_range: tuple[float, float] | None = None,
    max_ratio: float | None = None,
    max_weight: float | None = None,
    assume_recorded: bool = False,
    assume_markov: bool = False,
    terminal: Sequence[int] = (),
    rewards_at_end: bool = False,
    spend_anyway: bool = True,
    rules: RulesLike | None = None,
    unit: str | None = None,
    purpose: str | None = None,
    data_period: str | None = None,
    controller: str | None = None,
    sign: SigningKey | None = None,
    key: KeyLike | None = None,
    store: ReleaseStore | str | Path | None = None,
    executor: AbstractExecutor | None = None,
    budget: AnySharedBudget | None = None,
) -> CertifiedEvaluation:
    """Compares a policy with current practice on people who were not used to learn it.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> people = world.sample(world.behaviour_policy(), 4_000, jax.random.key(0))
    >>> held = privrl.data.Episodes.from_trajectories(people, num_states=3, num_actions=2)
    >>> always_right = np.ones(3, int)
    >>> evaluation = privrl.evaluate(held, always_right, epsilon=1, delta=1e-6, practice=world.behaviour, key=0)
    >>> evaluation.people
    4000
    >>> evaluation.certificate.epsilon <= 1
    True

    Arguments:
        held: the people, for example the second part of `privrl.data.split`; or the path (or paths) of their table,
            with a `schema`.
        policy: a `Result`, its policy, or one from elsewhere: probabilities `[S, A]` or `[H, S, A]`, actions `[S]`, the
            path of an .npz file with one such array, or the folder of a saved result. If the policy is not certain, its
            most probable action is the advice.
        privatizer: `Central(...)` with neighbours who replace one person, or `NonPrivate()`.
        epsilon, delta, rho: the budget, instead of a privatizer.
        schema: of a table in files: a schema file, or a mapping with the same names. If the policy is a saved result,
            its report completes the schema, apart from `unit`.
        public_key: the key that must have signed a saved result. Then the report completes `unit` too.
        practice: public probabilities `[S, A]` of current practice, or the path of a table of them. By default they are
            estimated, and no gain is certified.
        return_range: as in `fit`.
        max_ratio, max_weight, assume_recorded, assume_markov: as in `fit`. An infinite weight certifies nothing.
        terminal, rewards_at_end: as in `fit`; a schema has its own.
        spend_anyway: as in `fit`.
        rules: public rules on actions for a policy from elsewhere, on states; as in `fit`. A saved policy has its own.
        unit, purpose, data_period, controller, sign, key, store, executor, budget: as in `fit`.

    Returns:
        the evaluation, with a certificate of its own that is bound to the policy's hash.

    Raises:
        ValueError: the policy does not fit the people, or an argument contradicts another one.
        TableError: a row of the table is outside the declared bounds. The error does not quote it.
        TypeError: a privatizer or a budget is missing, or both were given.
        BudgetError: the budget is missing or meaningless.
        PairingError: the privatizer hides the number of people, over which an evaluation takes means.
        SignatureError: `public_key` did not sign the saved result.

    Warns:
        PrivacyWarning: `delta` is large for the number of people, or `key` seeds the noise of a table in files.

    **Formal guarantee.** The certificate covers every release of this evaluation, for one person of `held` replaced. It
    says nothing about what the policy reveals: for a person who was learnt from too, the two certificates compose.
    """
    trust = central_of(privatizer, BudgetArguments(epsilon, delta, rho), "An evaluation")
    if trust.adjacency != "replace-one" and trust.notion != "none":
        raise PairingError(
            f"`adjacency` is {trust.adjacency!r}, and an evaluation takes means over people, whose number must be "
            "public. Use `adjacency='replace-one'`."
        )
    finish = Finish.of(False, {}, {"purpose": purpose, "data_period": data_period, "controller": controller}, sign)
    chosen = load_policy(policy)
    if isinstance(chosen, Result) and chosen.policy is None:
        raise ValueError("The saved result holds no policy: it was withheld.")
    people, ends, noun = open_people(held, schema, Ends(tuple(terminal), rewards_at_end), key, chosen, public_key)
    named = policy_arrays(chosen)
    settings: dict[str, object] = {
        "return_range": ends.return_range(return_range, people.horizon),
        "max_ratio": max_ratio,
        "max_weight": max_weight,
        "assumption": assumption_of(people.logged, assume_recorded, people.least_propensity),
        "least_propensity": people.least_propensity,
        "reported": people.reported,
    }
    evaluator: AbstractEvaluator | None = _on_measurements(chosen, people, settings)
    if evaluator is None:
        settings["markov"] = assume_markov
        evaluator = _with_rules(_on_states(chosen, named, people, practice, ends, settings), chosen, named, rules)
    elif assume_markov:
        check_markov(max_ratio, max_weight, values=False)
    elif rules is not None:
        raise ValueError("`rules` are part of a policy on measurements since it was learnt. Leave them out.")
    elif practice is not None or ends.terminal:
        raise ValueError(
            "`practice` and `terminal` are about numbered states, and this policy is on measurements. Leave them out."
        )
    if not spend_anyway:
        check_number(people.num_units, trust)
        check_evaluation(
            people.num_units,
            evaluator.declare(),
            trust,
            public=evaluator.public or evaluator.logged,
            checked=evaluator.assumption == "checked",
            markov=evaluator.markov,
            limits=evaluator.limits,
            logged=evaluator.assumption == "logged",
        )
    how: dict[str, Any] = {
        "key": optional_key(key),
        "unit": unit or noun,
        "budget": budget,
        "unit_column": noun,
        "executor": executor,
        "called": "evaluation of a policy",
    }
    with open_store(store) as kept:
        answer = ask_curator("evaluate", people, evaluator, evaluator.evaluate, trust, store=kept, **how)
    found = answer.found
    if isinstance(evaluator, Evaluator) and evaluator.feature is None:
        found = replace(found, refused=(*found.refused, _NO_MODEL))
    notes = (*answer.certificate.notes, _ADDS_UP)
    certificate = replace(answer.certificate, result_sha256=policy_sha256(named), notes=notes).stating(finish.stated)
    warn_of_delta(certificate, found.people)
    evaluation = CertifiedEvaluation.of(found, certificate)
    return evaluation if finish.key is None else evaluation.signed(finish.key)


def _with_rules(
    evaluator: Evaluator, policy: AnyPolicy, named: Mapping[str, np.ndarray], given: RulesLike | None
) -> Evaluator:
    """The evaluator of a finite world with the rules of the policy, or those that are given."""
    own = rules_from_arrays(named)
    if given is None:
        return replace(evaluator, rules=own)
    if own:
        raise ValueError("The policy has rules of its own, with which it was learnt. Leave out `rules`.")
    names = policy.facts.get("names", {}) if isinstance(policy, Result) else {}
    arguments = RuleArguments(given, tuple(names.get("states", ())), tuple(names.get("actions", ())))
    return replace(evaluator, rules=arguments.compile(evaluator.space, ()))


def _on_states(
    policy: AnyPolicy,
    named: Mapping[str, np.ndarray],
    held: AbstractDataset,
    practice: Float[ArrayLike, "S A"] | str | Path | None,
    ends: Ends,
    settings: Mapping[str, Any],
) -> Evaluator:
    """The evaluator of a finite world."""
    advice = advice_of(policy, named)
    if practice is not None and not isinstance(practice, str | Path):
        num_actions = np.shape(practice)[-1]
    else:
        num_actions = named["probabilities"].shape[-1] if "probabilities" in named else held.num_actions
    known = read_probabilities(practice, (len(advice), num_actions), False, ends)
    world = (len(advice), num_actions, held.horizon, held.num_units, jnp.asarray(advice))
    values, strength = values_of(policy, len(advice)), strength_of(policy, named, len(advice))
    return Evaluator(*world, known, values, terminal=ends.terminal, strength=strength, **settings)


def _on_measurements(policy: AnyPolicy, held: AbstractDataset, settings: Mapping[str, Any]) -> MeasuredEvaluator | None:
    """The evaluator of a policy on measurements; none for other policies.

    An assisted policy is evaluated by the advice behind it. Weights of values come from an assisted policy, or from the
    report beside a result; without any, cells are told apart by how often practice does what is advised, alone.
    """
    values: Float[Array, " d"] | None = None
    unit: Float[Array, ""] | None = None
    whole: Any = policy.policy if isinstance(policy, Result) else policy
    if isinstance(whole, AssistedMeasuredPolicy):
        values, unit, whole = whole.values, whole.advantage_unit, whole.advice
    if not isinstance(whole, MeasuredPolicy):
        return None
    if values is None:
        values = values_of(policy, whole.features.dim)
    weights = jnp.zeros(whole.features.dim) if values is None else values
    return MeasuredEvaluator(whole, weights, held.horizon, held.num_units, advantage_unit=unit, **settings)
