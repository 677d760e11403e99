"""The report of an audit: text, JSON, and a plot of claimed against audited epsilon."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from privrl.audit.findings import Finding, to_json_object
from privrl.audit.sensitivity import Sensitivity
from privrl.plots.charts import draw_audits


@dataclass(frozen=True)
class AuditReport:
    """The audit of one recipe: what it claims, what exact accounting gives, and what the attack proved.

    `epsilon_lower` is a lower bound: with probability `confidence` the true epsilon at `delta` is at least that.
    **Below the claim it proves nothing**; above the claim it proves the claim false.

    Attributes:
        recipe: the name of the recipe.
        epsilon_claimed: the budget, or for a recipe as published the claim of the paper.
        epsilon_exact: the epsilon of the declared releases by exact accounting. The audit tries to refute this
            number.
        epsilon_lower: the largest epsilon that the attack refutes.
        delta: the delta of all three.
        trials: runs of each of the two worlds. One half chose the threshold; guesses were counted on the other
            half.
        confidence: the probability with which `epsilon_lower` holds.
        bound: how `epsilon_lower` was derived; `"Gaussian DP"` refutes claims of Gaussian differential privacy,
            which all Gaussian releases make.
        mu: the distance of the two worlds in units of the noise, if all noise is Gaussian; `mu_exact` is the
            largest that the accounting allows. Their ratio shows how close the pair is to the worst case of the
            accounting.
        loss_mean, loss_variance: of the privacy loss (the log-likelihood ratio of the true world to the other) over
            the runs of both worlds: mu^2/2 and mu^2 if the noise has the distribution that it claims.
        sensitivities: the worst pairs found for every release.
        attacks: what the attacks on the protocol found (`protocol_attacks`).
        notes: remarks on how the audit was run.
    """

    recipe: str
    epsilon_claimed: float
    epsilon_exact: float
    epsilon_lower: float
    delta: float
    trials: int
    confidence: float
    bound: Literal["Gaussian DP", "Clopper-Pearson"]
    mu: float | None = None
    mu_exact: float | None = None
    loss_mean: float = 0.0
    loss_variance: float = 0.0
    sensitivities: tuple[Sensitivity, ...] = ()
    attacks: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def broken(self) -> bool:
        """Whether the guarantee is refuted: by the bound, by two records beyond a sensitivity, or by the protocol."""
        beyond = self.epsilon_lower > self.epsilon_exact * (1 + 1e-9)
        return beyond or any(s.broken for s in self.sensitivities) or any(found.broken for found in self.attacks)

    def to_json(self) -> dict[str, object]:
        """Return a JSON object, in which infinities are the string "inf"."""
        parts = {name: [part.to_json() for part in getattr(self, name)] for name in ("sensitivities", "attacks")}
        return to_json_object(self, broken=self.broken, **parts)

    def __str__(self) -> str:
        verdict = "BROKEN" if self.broken else "not broken"
        lines = [
            f"{self.recipe}: {verdict}",
            f"  claimed     epsilon = {self.epsilon_claimed:.4g} at delta = {self.delta:.3g}"
            f" (exact accounting: {self.epsilon_exact:.4g})",
            f"  audited     epsilon >= {self.epsilon_lower:.4g} with confidence {self.confidence:g}"
            f" ({self.bound}, {self.trials} runs of each world)",
        ]
        if self.mu is not None and self.mu_exact and math.isfinite(self.mu):
            lines.append(
                f"  privacy loss  mean {self.loss_mean:.4g}, variance {self.loss_variance:.4g}; expected "
                f"{self.mu**2 / 2:.4g} and {self.mu**2:.4g} (mu = {self.mu:.4g} of {self.mu_exact:.4g} accounted for)"
            )
        lines.extend(
            f"  sensitivity {s.release}: found {s.found:.4g} of {s.declared:.4g} declared ({s.ratio:.3f}), "
            f"{s.norm.upper()}, {s.adjacency}{', in whole numbers' if s.arithmetic == 'lattice' else ''}"
            f"{' BROKEN' if s.broken else ''}"
            for s in self.sensitivities
        )
        lines.extend(f"  attack      {finding}" for finding in self.attacks)
        lines.extend(f"  note        {note}" for note in self.notes)
        return "\n".join(lines)


def plot_reports(reports: Sequence[AuditReport], path: str | Path) -> None:
    """Draw the claimed, exact and audited epsilon of each recipe to a file (.svg, .png or .pdf)."""
    finite = {
        report.recipe: (report.epsilon_claimed, report.epsilon_exact, report.epsilon_lower, report.broken)
        for report in reports
        if math.isfinite(report.epsilon_exact)
    }
    draw_audits(finite).savefig(path)
