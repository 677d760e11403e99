"""Whether there are enough people to spend a budget on, decided by public numbers before anything is released.

**Formal guarantee.** The number of people is the same for neighbours that replace one person, so a refusal reveals
nothing about anybody. If neighbours add or remove a person, the number is secret: nothing is refused, whatever it is.
"""

import math

from privrl.contracts.release import Declared
from privrl.evaluation.limits import PAIRS
from privrl.evaluation.widths import people_needed
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.statistics.off_policy import Limits

FEWEST = 100
"""With fewer people, noise hides all that could be learnt, and a budget is spent for nothing."""
_DEVIATIONS = 4.0  # above the expected number of people held out; coins exceed it in 3 of 100,000 studies


def check_number(people: int, privatizer: AbstractPrivatizer) -> None:
    """Refuse fewer than `FEWEST` people, if their number is public."""
    if _is_public(privatizer) and people < FEWEST:
        raise ValueError(
            f"There are {people:,} people, and at least {FEWEST} are needed: with fewer, noise hides all that could "
            "be learnt. Nothing was spent. Use more people, or spend the budget anyway with `spend_anyway`."
        )


def check_evaluation(
    people: int,
    declared: tuple[Declared, ...],
    privatizer: AbstractPrivatizer,
    *,
    public: bool,
    checked: bool = True,
    markov: bool = False,
    limits: Limits = PAIRS,
    logged: bool = False,
    share: float = 1.0,
) -> None:
    """Refuse an evaluation after which the policy is certain to be withheld, if public numbers make it certain.

    Arguments:
        people: how many there are, of whom `share` are held out to evaluate.
        declared: what the evaluator releases.
        privatizer: of the evaluation. Nothing is refused unless its noise is Gaussian.
        public: whether the probabilities of practice are.
        checked: whether a release needs checks of practice that are conclusive.
        markov: whether a model of the whole advice may decide.
        limits: the pairs of limits that are compared.
        logged: whether returns count from their lower bound, because weights are clipped.
    """
    if not _is_public(privatizer) or privatizer.mechanism_of_rounds != "gaussian":
        return
    settings = {"checked": checked, "markov": markov, "logged": logged}
    needed = people_needed(declared, privatizer, public=public, limits=limits, **settings)
    if needed is None:
        raise ValueError(
            "Without a finite `max_weight` there is never an estimate of a gain that could decide, so the policy is "
            "always withheld. Nothing was spent. Give a finite one, or spend the budget anyway with `spend_anyway`."
        )
    held = people if share == 1.0 else share * people + _DEVIATIONS * math.sqrt(people * share * (1.0 - share))
    if held >= needed.least:
        return
    least, enough = (math.ceil(number / share) for number in (needed.least, needed.enough))
    of_all = "" if share == 1.0 else f" (needs {least:,} people in all)"
    passed = f"With {enough:,} people, each check of practice is passed in about 95% of studies, if practice follows "
    why = (
        "noise alone hides the largest gain that the limits allow, so it would be withheld"
        if public and needed.least == needed.estimate
        else "it is certain to be withheld at this budget, whatever the data show"
    )
    raise ValueError(
        f"About {share * people:,.0f} people would evaluate the policy. With fewer than {needed.least:,}{of_all} "
        f"{why}. Nothing was spent. {passed + 'the record. ' if checked else ''}"
        "Use more people or a larger budget, or spend it anyway with `spend_anyway`."
    )


def _is_public(privatizer: AbstractPrivatizer) -> bool:
    """Whether the number of people is, and there is a budget to spend."""
    return privatizer.notion != "none" and privatizer.adjacency == "replace-one"
