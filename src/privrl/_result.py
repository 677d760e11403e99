"""What the verbs return: a policy, a certificate, and for simulations the exact regret; saved as a folder."""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from privrl.mdp import TabularPolicy
from privrl.privacy import Certificate, read_certificate


@dataclass(frozen=True)
class Result:
    """A policy and what it can reveal. `report` holds public numbers only (sizes, values, baselines)."""

    policy: TabularPolicy
    certificate: Certificate
    report: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: str | Path) -> Path:
        """Writes `certificate.json`, `policy.npz` and `report.json` to a new folder, all or nothing.

        Nothing else is written: no record, no exact count, no key. An existing result is replaced; a folder that holds
        anything else is refused.
        """
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or set(os.listdir(folder)) - _FILES):
            raise ValueError(f"`{folder}` exists and is not a saved result. Choose another folder, or remove it.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            (scratch / "certificate.json").write_text(json.dumps(self.certificate.to_json(), indent=2, allow_nan=False))
            (scratch / "report.json").write_text(json.dumps(self.report, indent=2))
            np.savez_compressed(scratch / "policy.npz", probabilities=np.asarray(self.policy.probabilities))
            scratch.chmod(0o755)
            if folder.exists():
                shutil.rmtree(folder)
            scratch.rename(folder)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Result":
        """Reads what `save` wrote; the training data are not needed."""
        folder = Path(folder)
        missing = [name for name in sorted(_FILES) if not (folder / name).is_file()]
        if missing:
            raise ValueError(f"`{folder}` is not a saved result: {', '.join(missing)} missing.")
        with np.load(folder / "policy.npz") as content:
            policy = TabularPolicy(jnp.asarray(content["probabilities"]))
        certificate = read_certificate((folder / "certificate.json").read_text())
        return cls(policy, certificate, json.loads((folder / "report.json").read_text()))


_FILES = {"certificate.json", "policy.npz", "report.json"}


@dataclass(frozen=True)
class Run:
    """A simulated online run over several seeds, with exact regret.

    Attributes:
        policy: the plan after the last release, with a leading axis of seeds.
        block_ends: the public ends of the blocks.
        block_regret: expected loss of one episode in each block, per seed, exact.
        seconds: wall-clock time, compilation included.
    """

    policy: Any
    certificate: Certificate
    block_ends: Int[np.ndarray, " B"]
    block_regret: Float[np.ndarray, "seeds B"]
    seconds: float

    @cached_property
    def block_sizes(self) -> Int[np.ndarray, " B"]:
        return np.diff(self.block_ends, prepend=0)

    @property
    def regret(self) -> Float[np.ndarray, "seeds K"]:
        """The expected loss of every episode, per seed."""
        return np.repeat(self.block_regret, self.block_sizes, axis=1)

    @property
    def total_regret(self) -> Float[np.ndarray, " seeds"]:
        """The summed loss of all episodes, per seed."""
        return self.block_regret @ self.block_sizes

    def curve(self) -> dict[str, list[float]]:
        """Cumulative regret at the block ends: mean over seeds and its standard error."""
        cumulative = np.cumsum(self.block_regret * self.block_sizes, axis=1)
        seeds = cumulative.shape[0]
        spread = cumulative.std(axis=0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.full(cumulative.shape[1], np.nan)
        return {
            "episodes": self.block_ends.tolist(),
            "mean": cumulative.mean(axis=0).tolist(),
            "se": [None if np.isnan(x) else x for x in spread.tolist()],
        }
