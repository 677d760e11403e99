"""`Published`: the noise of a paper, certified at its exact cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from privrl.contracts.release import Declared
from privrl.contracts.statistic import Adjacency
from privrl.privacy.accounting.certificate import Notion
from privrl.privacy.accounting.gdp import zcdp_epsilon
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.accounting.privacy_budget import Budget, BudgetError
from privrl.privacy.continual.participation import ONCE, Participation
from privrl.privacy.trust.channels import AbstractChannel, NoiseKind
from privrl.privacy.trust.privatizers import (
    AbstractPrivatizer,
    Continual,
    PairingError,
    check_continual,
    curator_channel,
    event_of,
    one_of,
    refuse_returns,
    vector_channel,
)

PublishedNoise = Callable[[Sequence[Declared], Budget], Mapping[str, float]]


@dataclass(frozen=True)
class Published(AbstractPrivatizer):
    """The noise of a paper, at a curator or on each person's message; the certificate shows claimed and exact epsilon.

    Arguments:
        noise: computes the cost of the noise from the declarations and the claimed budget: for each name the mu of one
            release (with Laplace noise its epsilon), that is the true sensitivity (replace-one) over the paper's noise
            scale.
        source: the paper.
        epsilon, delta, rho: what the paper claims for all releases: epsilon and delta, or rho (the claimed epsilon is
            then its simple conversion at `delta`), or epsilon alone with Laplace noise.
        trust: `"central"`, or `"local"` if each person adds the noise to the one message that they send.
        continual: how a curator releases running sums.
        mechanism: the kind of the paper's noise, `"gaussian"` or `"laplace"`.

    **Formal guarantee.** A release with sensitivity D and Gaussian noise of scale s is exactly (D/s)-GDP; with L1
    sensitivity D and Laplace noise of scale s it is (D/s)-differentially private. The certificate states this cost,
    whether it is more or less than the claim.
    """

    noise: PublishedNoise
    source: str
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    trust: Literal["central", "local"] = "central"
    continual: Continual = "fresh"
    mechanism: NoiseKind = "gaussian"
    adjacency: Adjacency = field(default="replace-one", init=False)

    def __post_init__(self) -> None:
        one_of("trust", self.trust, ("central", "local"))
        one_of("mechanism", self.mechanism, ("gaussian", "laplace"))
        check_continual(self.continual, self.mechanism)
        if self.budget.kind == "pure" and self.mechanism == "gaussian":
            raise BudgetError(
                f"`epsilon`={self.epsilon} alone is a pure budget, which Gaussian noise never meets. Add `delta`."
            )

    @property
    def notion(self) -> Notion:
        return self.trust

    @property
    def budget(self) -> Budget:
        """What the paper claims."""
        return Budget.of(epsilon=self.epsilon, delta=self.delta, rho=self.rho)

    @property
    def reported_delta(self) -> float:
        return self.budget.delta

    @property
    def mechanism_of_rounds(self) -> NoiseKind:
        if self.trust == "local":
            raise PairingError("`Published(trust='local')` has no curator to answer queries. Use `Central(...)`.")
        return self.mechanism

    @property
    def claimed(self) -> Mapping[str, float | str | None]:
        delta = self.budget.delta
        if self.rho is None:
            return {"epsilon": self.epsilon, "delta": delta, "source": self.source}
        return {"epsilon": zcdp_epsilon(self.rho, delta), "delta": delta, "rho": self.rho, "source": self.source}

    def check(self, learner: str, declared: Sequence[Declared], participation: Participation = ONCE) -> None:
        refuse_returns(participation, f"the noise of {self.source} is for people who take part once")
        for d in declared:
            if d.access == "choice":
                raise PairingError(
                    f"`{learner}` releases a choice (`{d.name}`), which is made by a noisy maximum, and the "
                    f"published noise is {self.mechanism.capitalize()}. Use `Central(...)`."
                )
            if d.gaussian and self.mechanism == "laplace":
                raise PairingError(
                    f"`{d.name}` of `{learner}` is released with Gaussian noise, and the published noise is Laplace. "
                    "Use `Central(...)` with a delta."
                )
            if self.trust == "local" and (d.access == "rounds" or d.statistic is None):
                raise PairingError(
                    f"`{learner}` queries `{d.name}` after people have left, and local noise keeps no raw data. "
                    "Use a learner that sends one message per person."
                )
        known = self.noise(declared, self.budget)
        missing = [d.name for d in declared if d.name not in known]
        if missing:
            raise PairingError(f"The published noise of {self.source} has no scale for {missing} of `{learner}`.")

    def calibrate(self, declared: Sequence[Declared], participation: Participation = ONCE) -> Ledger:
        cost = self.noise(declared, self.budget)
        events = [event_of(d, self.mechanism, cost[d.name]) for d in declared]
        return Ledger(declared, events, self.adjacency, participation)

    def channel(self, declared: Declared, ledger: Ledger) -> AbstractChannel:
        if self.trust == "local":
            return vector_channel(declared, ledger, self.mechanism)
        return curator_channel(declared, ledger, self.mechanism, self.continual)
