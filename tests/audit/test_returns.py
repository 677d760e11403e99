"""Audits of every recipe that learns while people come back: worlds that differ in all episodes of one person."""

import jax
import pytest

from privrl.audit.audit_report import AuditReport
from privrl.audit.empirical import lower_bound
from privrl.audit.worlds import prepare_audit
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.privacy.trust.privatizers import PairingError
from privrl.recipes.all_recipes import recipes

KEY = jax.random.key(3)
ONLINE = [
    name
    for name, recipe in recipes.items()
    if recipe.trust != "none" and isinstance(prepare_audit(recipe, 2.0, 1e-5, None, None)[3], AbstractOnlineLearner)
]
CURATED = ("dp-ucbvi", "dp-lsvi-ucb", "dp-lsvi-ucb++", "private-lq", "private-ofu-lq")  # sums of people as they come
PATTERNS = {"twice": (2, 0), "apart": (3, 1), "far apart": (2, 2)}


def audited(name: str, m: int, distance: int, *, open_ended: bool = False) -> AuditReport:
    return lower_bound(
        name, epsilon=2.0, delta=1e-5, trials=400, rounds=2, key=KEY, confidence=1 - 1e-6,
        max_episodes_per_unit=m, min_block_distance=distance, open_ended=open_ended,
    )  # fmt: skip


def holds(found: AuditReport) -> None:
    """Not above what is certified; and close to it, as far as the recorded run asks for all that people could give."""
    assert not found.broken and found.epsilon_exact <= 2.0 + 1e-6
    if found.recipe in CURATED:
        assert found.mu is not None and found.mu_exact is not None
        weighted = found.recipe == "dp-lsvi-ucb++"  # whose published weights are below 1
        assert (0.5 if weighted else 0.85) * found.mu_exact <= found.mu <= found.mu_exact * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", ONLINE)
def test_every_online_recipe_holds_where_people_come_back(name: str, pattern: str) -> None:
    """Or is refused, where its noise is for people who come once."""
    if recipes[name].trust == "shuffle" or "@paper" in name:
        with pytest.raises(PairingError, match="take part"):
            audited(name, *PATTERNS[pattern])
    else:
        holds(audited(name, *PATTERNS[pattern]))


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", CURATED)
def test_epochs_hold_where_people_come_back(name: str, pattern: str) -> None:
    holds(audited(name, *PATTERNS[pattern], open_ended=True))
