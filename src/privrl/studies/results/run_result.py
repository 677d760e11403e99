"""What a simulation returns: the exact regret over several seeds, as a table, as files, and compared with another."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, PyTree
from scipy.stats import permutation_test

from privrl.contracts.policy import class_in, is_registered
from privrl.contracts.printing import html_table, short_repr
from privrl.contracts.untrusted import MALFORMED, read_bytes, read_npz
from privrl.mdp.lq import LinearPolicy
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.certificate import Certificate, read_certificate
from privrl.studies.results.binding import CERTIFICATE, arrays_of, json_bytes
from privrl.writing import whole_folder

if TYPE_CHECKING:
    import pyarrow as pa

RUN = "run.npz"
_FILES = frozenset({RUN, CERTIFICATE})
_SAVED: dict[str, Any] = {kind.__name__: kind for kind in (TabularPolicy, LinearPolicy)}
_PERMUTATIONS = 9999


@dataclass(frozen=True)
class Run:
    """A simulated online run over several seeds, with exact regret.

    >>> run = privrl.run("riverswim", "dp-ucbvi", epsilon=1, delta=1e-6, episodes=100, seeds=2, key=0)
    >>> run.regret.shape, run.total_regret.shape
    ((2, 100), (2,))

    >>> run.table().column_names
    ['recipe', 'epsilon', 'seed', 'episode', 'regret']

    Attributes:
        policy: the plan after the last release, with a leading axis of seeds.
        block_ends: the public ends of the blocks.
        block_regret: expected loss of one episode in each block, per seed, exact.
        seconds: wall-clock time, compilation included.
        recipe: the name of the recipe, or of the learner's class.

    Raises:
        ValueError: a folder that is loaded is not a saved run, or was made in another way.
        TypeError: a run is saved whose policy is of another kind than tables and linear controllers.
    """

    policy: PyTree
    certificate: Certificate
    block_ends: Int[np.ndarray, " B"]
    block_regret: Float[np.ndarray, "seeds B"]
    seconds: float
    recipe: str = ""

    def __repr__(self) -> str:
        seeds, episodes = len(self.block_regret), int(self.block_ends[-1])
        repeated = f"{seeds} seed{'s' if seeds > 1 else ''} of {episodes:,} episodes"
        return short_repr("Run", self.certificate.learner, repeated, self.certificate.guarantee)

    def _repr_html_(self) -> str:
        rows = {
            "Episodes": f"{self.block_ends[-1]:,}",
            "Seeds": len(self.block_regret),
            "Total regret": f"{self.total_regret.mean():.4g} (mean over seeds)",
        }
        return html_table(f"Run ({self.certificate.learner})", rows | self.certificate.summary())

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

    def table(self) -> "pa.Table":
        """Long rows as an Arrow table: for each seed and each block, the regret of all episodes up to its end.

        `run.table().to_pandas()` is a data frame if pandas is installed. The tables of several runs are joined with
        `pyarrow.concat_tables`.
        """
        import pyarrow as pa  # a service works without it

        seeds, blocks = self.block_regret.shape
        rows = seeds * blocks
        return pa.table(
            {
                "recipe": pa.array([self.recipe or self.certificate.learner] * rows),
                "epsilon": np.full(rows, float(f"{self.certificate.epsilon:.9g}")),  # 1, not 0.9999999999
                "seed": np.repeat(np.arange(seeds), blocks),
                "episode": np.tile(self.block_ends, seeds),
                "regret": np.cumsum(self.block_regret * self.block_sizes, axis=1).ravel(),
            }
        )

    def compare(self, other: "Run", *, paired: bool = False) -> "RunComparison":
        """Tests whether two runs differ in their mean total regret, by permutations of seeds.

        >>> how = {"delta": 1e-6, "episodes": 500, "seeds": 4, "key": 0}
        >>> run, other = privrl.sweep("riverswim", "dp-ucbvi", epsilon=[1, 100], **how)
        >>> round(run.compare(other).p_value, 3)
        0.029

        Arguments:
            paired: the two runs were simulated with the same key, so that seeds are exchanged within pairs.

        Raises:
            ValueError: a run has fewer than two seeds, or paired runs have different numbers of seeds.
        """
        totals = (self.total_regret, other.total_regret)
        if min(map(len, totals)) < 2 or (paired and len(totals[0]) != len(totals[1])):
            raise ValueError(
                f"The runs have {len(totals[0])} and {len(totals[1])} seeds; each needs at least 2, and paired runs "
                "need the same number."
            )
        found = permutation_test(
            totals,
            lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
            permutation_type="samples" if paired else "independent",
            n_resamples=_PERMUTATIONS,
            vectorized=True,
            rng=0,
        )
        return RunComparison(float(found.statistic), float(found.pvalue))

    def save(self, folder: str | Path, *, overwrite: bool = True, facts: str = "") -> Path:
        """Writes `certificate.json` and `run.npz` to a folder, all or nothing; `load` reads them.

        Arguments:
            overwrite: whether an older run may be replaced.
            facts: a text that is kept with the run, for example how it was made.

        Raises:
            TypeError: the policy of the run is of a kind that `load` cannot read.
        """
        kind = type(self.policy).__name__
        if kind not in _SAVED and not is_registered(self.policy):
            raise TypeError(f"A run whose policy is a `{kind}` cannot be saved. Keep its `table()` instead.")
        arrays = {f"policy.{name}": array for name, array in arrays_of(self.policy).items()}
        text = {"kind": kind, "recipe": self.recipe, "facts": facts}
        with whole_folder(folder, _FILES, overwrite=overwrite) as scratch:
            with (scratch / RUN).open("wb") as file:
                np.savez_compressed(
                    file,
                    allow_pickle=False,
                    block_ends=self.block_ends,
                    block_regret=self.block_regret,
                    seconds=self.seconds,
                    **arrays,
                    **text,
                )
            (scratch / CERTIFICATE).write_bytes(json_bytes(self.certificate.to_json()))
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path, *, facts: str | None = None) -> "Run":
        """Reads what `save` wrote.

        Arguments:
            facts: the text that must have been kept with the run, if given.

        Raises:
            ValueError: a file is missing or malformed, or the run was made in another way.
        """
        folder, what = Path(folder), f"`{RUN}` in `{folder}`"
        certificate = read_certificate(read_bytes(folder / CERTIFICATE))
        arrays = read_npz(read_bytes(folder / RUN), what)
        try:
            own = {name[7:]: x for name, x in arrays.items() if name.startswith("policy.")}
            policy = (class_in(own) or _SAVED[str(arrays["kind"])]).from_arrays(own)
            ends, regret = arrays["block_ends"], arrays["block_regret"]
            if ends.ndim != 1 or regret.ndim != 2 or regret.shape[1] != len(ends) or np.any(np.diff(ends) < 1):
                raise ValueError("The blocks do not fit.")
            run = cls(policy, certificate, ends, regret, float(arrays["seconds"]), str(arrays["recipe"]))
            found = str(arrays["facts"])
        except MALFORMED as error:
            raise ValueError(f"{what} is not a saved run, or is damaged.") from error
        if facts is not None and found != facts:
            raise ValueError(
                f"`{folder}` holds a run that was made in another way, or by other code. Choose another folder."
            )
        return run


@dataclass(frozen=True)
class RunComparison:
    """The difference in mean total regret of two runs, and the probability of one at least as large by chance."""

    difference: float
    p_value: float
