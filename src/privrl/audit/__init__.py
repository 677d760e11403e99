"""Attacks on everything here: what a privacy claim promises, and what an attacker can prove against it.

`lower_bound("dp-pevi", key=key)` runs a recipe in two worlds that differ in one person and says how large its epsilon
must be, at least. A bound below the claim proves nothing; one above it proves the claim false.
"""

from privrl.audit.audit_report import AuditReport
from privrl.audit.empirical import lower_bound
from privrl.audit.one_run import one_run
from privrl.audit.protocol.protocol_attacks import protocol_attacks
from privrl.audit.sensitivity import sensitivities
from privrl.audit.theorem_4 import theorem_4
from privrl.audit.worlds import tiny_world

__all__ = [
    "AuditReport",
    "lower_bound",
    "one_run",
    "protocol_attacks",
    "sensitivities",
    "theorem_4",
    "tiny_world",
]
