"""Attacks on everything here: what a privacy claim promises, and what an attacker can prove against it.

`lower_bound("dp-pevi", key=key)` runs a recipe in two worlds that differ in one person and says how large its epsilon
must be, at least. A bound below the claim proves nothing; one above it proves the claim false.
"""

from privrl.audit import known_bad
from privrl.audit._adversarial import adversarial_lq_records, adversarial_records
from privrl.audit._bounds import (
    epsilon_lower,
    gdp_epsilon_lower,
    mu_lower,
    one_run_epsilon,
    rate_bounds,
)
from privrl.audit._differencing import DifferencingReport, differencing, reads_agree, restart_agrees
from privrl.audit._empirical import bound_of, lower_bound, lower_bounds
from privrl.audit._findings import Finding
from privrl.audit._one_run import OneRunReport, one_run
from privrl.audit._protocol import protocol_attacks
from privrl.audit._report import AuditReport, plot
from privrl.audit._sensitivity import Sensitivity, sensitivities
from privrl.audit._theorem_4 import Theorem4, lemma_10_bound, theorem_4
from privrl.audit._worlds import tiny_world

__all__ = [
    "AuditReport",
    "DifferencingReport",
    "Finding",
    "OneRunReport",
    "Sensitivity",
    "Theorem4",
    "adversarial_lq_records",
    "adversarial_records",
    "bound_of",
    "differencing",
    "epsilon_lower",
    "gdp_epsilon_lower",
    "known_bad",
    "lemma_10_bound",
    "lower_bound",
    "lower_bounds",
    "mu_lower",
    "one_run",
    "one_run_epsilon",
    "plot",
    "protocol_attacks",
    "rate_bounds",
    "reads_agree",
    "restart_agrees",
    "sensitivities",
    "theorem_4",
    "tiny_world",
]
