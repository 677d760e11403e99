"""Budgets, mechanisms, ledgers and certificates. This package knows people and sums, but not their meaning."""

from typing import TYPE_CHECKING

from privrl.lazy import lazy_names

if TYPE_CHECKING:
    from privrl.privacy.accounting.certificate import read_certificate
    from privrl.privacy.accounting.composition import epsilon_of
    from privrl.privacy.accounting.gdp import gdp_epsilon, gdp_mu, zcdp_epsilon, zcdp_rho
    from privrl.privacy.accounting.ledger import OverspentError
    from privrl.privacy.accounting.privacy_budget import Budget, BudgetError
    from privrl.privacy.accounting.signature import SignatureError
    from privrl.privacy.canonical_ids import canonical_id
    from privrl.privacy.continual.mechanisms import geometric_schedule
    from privrl.privacy.functions.released import ReleasedFunction
    from privrl.privacy.noise.bounding import clip_by_norm
    from privrl.privacy.noise.sensitivities import l2_of_outer_products, l2_of_scaled, l2_of_sum
    from privrl.privacy.store.errors import BurntError, StoreError, StudyMismatchError
    from privrl.privacy.trust.privatizers import PairingError
    from privrl.privacy.trust.published import Published

__all__ = [
    "Budget",
    "BudgetError",
    "BurntError",
    "OverspentError",
    "PairingError",
    "Published",
    "ReleasedFunction",
    "SignatureError",
    "StoreError",
    "StudyMismatchError",
    "canonical_id",
    "clip_by_norm",
    "epsilon_of",
    "gdp_epsilon",
    "gdp_mu",
    "geometric_schedule",
    "l2_of_outer_products",
    "l2_of_scaled",
    "l2_of_sum",
    "read_certificate",
    "zcdp_epsilon",
    "zcdp_rho",
]

__getattr__, __dir__ = lazy_names(__name__)
