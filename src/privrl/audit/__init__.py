"""Attack private learners, and prove lower bounds on their epsilon.

`lower_bound("dp-pevi", key=key)` runs a recipe in two worlds that differ in one person, and returns a lower bound
on its epsilon. A bound below the claim proves nothing; a bound above the claim proves the claim false.
"""

from privrl.audit.audit_report import AuditReport
from privrl.audit.empirical import lower_bound
from privrl.audit.one_run import one_run
from privrl.audit.protocol.protocol_attacks import protocol_attacks
from privrl.audit.sensitivity import sensitivities
from privrl.audit.surface.adversarial_records import adversarial_records
from privrl.audit.theorem_4 import theorem_4
from privrl.audit.worlds import tiny_world

__all__ = [
    "AuditReport",
    "adversarial_records",
    "lower_bound",
    "one_run",
    "protocol_attacks",
    "sensitivities",
    "theorem_4",
    "tiny_world",
]
