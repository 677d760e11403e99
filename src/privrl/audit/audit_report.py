"""What an audit found: text, JSON, and a plot of claimed against audited."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from privrl.audit.findings import Finding, json_of
from privrl.audit.sensitivity import Sensitivity


@dataclass(frozen=True)
class AuditReport:
    """One recipe: what it claims, what exact accounting says, and what an attacker could prove.

    `epsilon_lower` is a lower bound: with probability `confidence` the true epsilon at `delta` is at least that.
    **Below the claim it proves nothing**; above the claim it proves the claim false.

    Attributes:
        recipe: its name.
        epsilon_claimed: what is promised: the budget, or for a recipe as published what the paper claims.
        epsilon_exact: what accounting for the declared releases gives; this is what the audit tries to break.
        epsilon_lower: what the attack proves.
        delta: at which all three are stated.
        trials: runs of each of the two worlds; one half chose the threshold, the other half was counted.
        confidence: with which `epsilon_lower` holds.
        bound: how it was derived; `"Gaussian DP"` refutes claims of Gaussian differential privacy, which all Gaussian
            releases make.
        mu: the distance of the two worlds in units of the noise, if all noise is Gaussian; `mu_exact` is the largest
            that the accounting allows. Their ratio says how close the pair is to the worst that is accounted for.
        loss_mean, loss_variance: of the privacy loss, the log-likelihood ratio of the true world to the other, over the
            runs of both worlds: mu^2/2 and mu^2 if the noise is what it says.
        sensitivities: the worst pairs found for every release.
        attacks: what the attacks on the protocol found (`protocol_attacks`).
        notes: what was run, in words.
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

    def to_json(self) -> dict[str, Any]:
        """A JSON object; infinities are written as the string "inf"."""
        parts = {name: [part.to_json() for part in getattr(self, name)] for name in ("sensitivities", "attacks")}
        return json_of(self, broken=self.broken, **parts)

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


def plot(reports: Sequence[AuditReport], path: str | Path) -> None:
    """Claimed, exact and audited epsilon of each recipe, to a file (.svg, .png or .pdf)."""
    import matplotlib.pyplot as plt

    finite = [report for report in reports if math.isfinite(report.epsilon_exact)]
    figure, axes = plt.subplots(figsize=(7.0, 1.2 + 0.28 * max(len(finite), 1)), layout="constrained")
    rows = range(len(finite))
    axes.barh(rows, [r.epsilon_lower for r in finite], color="0.8", label="audited, at least")
    axes.plot([r.epsilon_exact for r in finite], rows, "|", color="black", markersize=12, label="exact accounting")
    axes.plot([r.epsilon_claimed for r in finite], rows, ".", color="tab:blue", label="claimed")
    for row, report in enumerate(finite):
        if report.broken:
            axes.text(report.epsilon_lower, row, " broken", va="center", color="tab:red")
    axes.set_yticks(rows, [r.recipe for r in finite])
    axes.invert_yaxis()
    axes.set_xlabel("epsilon")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path)
    plt.close(figure)
