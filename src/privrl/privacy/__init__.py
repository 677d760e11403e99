"""Budgets, mechanisms, ledgers and certificates. Knows people and sums, nothing of what the sums are for."""

from privrl.privacy._accounting import calibrate, delta_of, epsilon_of, mu_of, rho_of
from privrl.privacy._budget import Budget, BudgetError
from privrl.privacy._certificate import Certificate, Notion, read_certificate
from privrl.privacy._channels import AbstractChannel, RoundsChannel
from privrl.privacy._continual import BinaryTree, Fresh, Honaker, SquareRoot, every, geometric_schedule
from privrl.privacy._curator import AbstractPeople, Curator
from privrl.privacy._events import Event, Request
from privrl.privacy._exact_stream import ExactStream
from privrl.privacy._features import ReleasedLinearFunction, weights_from_values
from privrl.privacy._functional import ReleasedFunction, best_beta, rkhs_norm, tent_distance
from privrl.privacy._gdp import gdp_delta, gdp_epsilon, gdp_mu, rdp_epsilon, zcdp_epsilon, zcdp_rho
from privrl.privacy._identity import canonical_id, keyed_hash
from privrl.privacy._lattice import Lattice, LatticeError, filled_by, lattice_for, lattice_of_blocks, lattice_total
from privrl.privacy._ledger import Ledger, OverspentError
from privrl.privacy._local_channels import AbstractLocalChannel, SymbolChannel
from privrl.privacy._mechanisms import (
    clip_by_norm,
    l2_of_outer_products,
    l2_of_scaled,
    l2_of_sum,
)
from privrl.privacy._noise import AbstractNoise, DebiasedNoise, GaussianNoise, LaplaceNoise, SymmetricNoise
from privrl.privacy._paths import GaussianProcessPath, PathBuffer, bridge, innovations, lattice_path, lattice_points
from privrl.privacy._privatizer_settings import privatizer_settings
from privrl.privacy._privatizers import AbstractPrivatizer, Central, Local, NonPrivate, PairingError, Published
from privrl.privacy._published_local import PublishedLocal
from privrl.privacy._release import (
    AbstractCategorical,
    AbstractStatistic,
    Adjacency,
    Declared,
    Release,
)
from privrl.privacy._reports import AbstractReports
from privrl.privacy._shuffle import local_epsilon_for, shuffled_delta, shuffled_epsilon
from privrl.privacy._shuffled import Batched, Shuffled
from privrl.privacy._signature import SignatureError, read_private_key, read_public_key
from privrl.privacy._sources import (
    AbstractSource,
    NoiseReuseError,
    Seeded,
    System,
    record_draws,
    standard_laplace,
    standard_normal,
)
from privrl.privacy._store import ReleaseStore
from privrl.privacy._store_errors import (
    BehindHeadError,
    BurntError,
    ConflictError,
    QueueFullError,
    StoreError,
    StreamFullError,
    StreamSealedError,
    StudyMismatchError,
    TamperedError,
)
from privrl.privacy._stream import Stream
from privrl.privacy._subset import ResponseNoise, SubsetSelection, variance_of_sums

__all__ = [
    "AbstractCategorical",
    "AbstractChannel",
    "AbstractLocalChannel",
    "AbstractNoise",
    "AbstractPeople",
    "AbstractPrivatizer",
    "AbstractReports",
    "AbstractSource",
    "AbstractStatistic",
    "Adjacency",
    "Batched",
    "BehindHeadError",
    "BinaryTree",
    "Budget",
    "BudgetError",
    "BurntError",
    "Central",
    "Certificate",
    "ConflictError",
    "Curator",
    "DebiasedNoise",
    "Declared",
    "Event",
    "ExactStream",
    "Fresh",
    "GaussianNoise",
    "GaussianProcessPath",
    "Honaker",
    "LaplaceNoise",
    "Lattice",
    "LatticeError",
    "Ledger",
    "Local",
    "NoiseReuseError",
    "NonPrivate",
    "Notion",
    "OverspentError",
    "PairingError",
    "PathBuffer",
    "Published",
    "PublishedLocal",
    "QueueFullError",
    "Release",
    "ReleaseStore",
    "ReleasedFunction",
    "ReleasedLinearFunction",
    "Request",
    "ResponseNoise",
    "RoundsChannel",
    "Seeded",
    "Shuffled",
    "SignatureError",
    "SquareRoot",
    "StoreError",
    "Stream",
    "StreamFullError",
    "StreamSealedError",
    "StudyMismatchError",
    "SubsetSelection",
    "SymbolChannel",
    "SymmetricNoise",
    "System",
    "TamperedError",
    "best_beta",
    "bridge",
    "calibrate",
    "canonical_id",
    "clip_by_norm",
    "delta_of",
    "epsilon_of",
    "every",
    "filled_by",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "geometric_schedule",
    "innovations",
    "keyed_hash",
    "l2_of_outer_products",
    "l2_of_scaled",
    "l2_of_sum",
    "lattice_for",
    "lattice_of_blocks",
    "lattice_path",
    "lattice_points",
    "lattice_total",
    "local_epsilon_for",
    "mu_of",
    "privatizer_settings",
    "rdp_epsilon",
    "read_certificate",
    "read_private_key",
    "read_public_key",
    "record_draws",
    "rho_of",
    "rkhs_norm",
    "shuffled_delta",
    "shuffled_epsilon",
    "standard_laplace",
    "standard_normal",
    "tent_distance",
    "variance_of_sums",
    "weights_from_values",
    "zcdp_epsilon",
    "zcdp_rho",
]
