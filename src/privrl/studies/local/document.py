"""The public document of a local study: all that a device must know to take part, and the study's identity.

It is JSON in one canonical form (sorted keys, no spaces, ASCII), so it has one SHA-256, which names the study:
another epsilon, query or number of people is another study. An app ships the hash and refuses every other document.
Numbers that decide about privacy are hexadecimal floats, which every language reads exactly.
"""

import hashlib
import json
from collections.abc import Mapping

from privrl.contracts.learner import AbstractOnlineLearner
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.trust.direction_channels import DirectionReports
from privrl.privacy.trust.local_channels import AbstractReports
from privrl.privacy.trust.symbol_channels import SymbolReports
from privrl.statistics.counts import TransitionCounts
from privrl.studies.local.wire import FORMAT


def document_of(
    learner: AbstractOnlineLearner,
    reports: Mapping[str, AbstractReports],
    num_users: int,
    nonce: str,
    max_episodes_per_unit: int = 1,
) -> bytes:
    """Builds the document of a study. If people report several visits, `reports` states how many; the epsilon of a
    part is that of one report.

    Arguments:
        nonce: random, so that two studies with equal settings differ.
    """
    content = {
        "format": FORMAT,
        "nonce": nonce,
        "learner": type(learner).__name__,
        "users": num_users,
        "horizon": learner.horizon,
        "parts": [{"name": name, **_part(one)} for name, one in reports.items()],
    }
    if max_episodes_per_unit > 1:
        content["reports"] = max_episodes_per_unit
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def identity_of(document: bytes) -> bytes:
    """The SHA-256 of a document, which identifies the study in tickets and messages."""
    return hashlib.sha256(document).digest()


def _part(reports: AbstractReports) -> dict[str, object]:
    if isinstance(reports, SymbolReports):
        answer = {"symbols": reports.largest, "size": reports.size, "epsilon": reports.epsilon.hex()}
        return {"kind": "symbols", **answer, "question": _question(reports.statistic)}
    if isinstance(reports, DirectionReports):
        grid = {"shape": list(reports.shape), "largest": str(reports.largest), "radius": reports.radius.hex()}
        return {"kind": "direction", **grid, "epsilon": reports.epsilon.hex()}
    sensitivity, scale = reports.calibration or (0.0, 0.0)
    distribution = {"sensitivity": float(sensitivity).hex(), "scale": float(scale).hex()}
    return {"kind": "vector", "shape": list(reports.shape), "largest": str(reports.largest), **distribution}


def _question(statistic: AbstractStatistic) -> dict[str, object]:
    """The kind and the sizes of the query; `TransitionCounts` defines the kinds."""
    if not isinstance(statistic, TransitionCounts):
        return {"statistic": type(statistic).__name__}
    return {
        "statistic": "TransitionCounts",
        "asking": statistic.asking,
        "counting": statistic.counting,
        "with_end": statistic.with_end,
        "states": statistic.num_states,
        "actions": statistic.num_actions,
    }
