"""Audit: try to break a recipe, see a broken one caught, and audit a fit of your own with canaries.

Run it with `python examples/audit.py`.
"""

import os

import jax

from privrl.audit import known_bad
from privrl.audit.empirical import lower_bound

TOY = bool(os.environ.get("PRIVRL_TOY"))
TRIALS = 2_000 if TOY else 100_000

# Two worlds that differ in one person, many runs of each: how well can they be told apart?
report = lower_bound("dp-pevi", epsilon=1.0, delta=1e-5, trials=TRIALS, key=jax.random.key(0))
print(report)
assert not report.broken  # a bound below the claim proves nothing; one above would prove the claim false

# The audit can fail: this mechanism uses one draw of noise for two releases.
reused = next(case for case in known_bad.CASES if case.name == "reused-key")
found = reused.attack(jax.random.key(1), reused.trials)
print(f"{reused.name}: claimed {found.claimed:g}, audited {found.audited:.2f}: {reused.flaw}")
assert found.caught
