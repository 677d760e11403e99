"""Theorem 4 of wang-hegde as a calculator: its conditions, whether they can be met, and why it does not hold.

Algorithm 1 is said to be (epsilon, delta + J exp(-(k r_0 - 51.7 sqrt(beta))^2/2))-private for T samples in batches of B
if, for some k,

    sigma <= 5,    k r_0 > 51.7 sqrt(beta),    sigma >= sqrt(2 (T/B) ln(e + epsilon/delta)) C/epsilon,
    C = (1 + beta^2) (2 alpha L^2 (2k+1) r_0/B)^2 + L^2/(2 beta).

(The proof has C = Delta^2 and sigma >= sqrt(4 (T/B) Delta^2 ln(...))/epsilon; the statement has C where Delta stood,
and is less where C < 2.) None of it makes the algorithm private, see `REASONS`. Nor does it leave room to learn:

**Proposition.** Let n = T/B, x = alpha L^2/B, ln = ln(e + epsilon/delta), and suppose the conditions hold. Then the
rewards can move Q, over the whole run, by no more than about n alpha L^2 r_0 = n B x r_0 (`reward_influence`), and
n x <= sigma^2 epsilon^2/(146.2 L^3 ln).

*Proof.* (2k+1) r_0 > 103.4 sqrt(beta), so with S = sigma epsilon/sqrt(2 n ln) the last condition gives
(1 + beta^2) beta (206.8 x)^2 <= S and L^2/(2 beta) <= S. Hence beta >= L^2/(2S), and
x <= sqrt(S)/(206.8 beta^{3/2}) <= 2^{3/2} S^2/(206.8 L^3) = sigma^2 epsilon^2/(146.2 n L^3 ln). ∎

With the 1/B of the proof repaired (all rewards of a batch change), x is alpha L^2 and Q moves by n x r_0: at
epsilon = 1, delta = 1e-5, L = 1 and the largest noise, sigma = 5, by 1.5% of the largest reward, whatever T, B, J,
alpha and beta are; at sigma = 0.4, the largest for which the paper reports learning, by 0.01%. As printed, B times
that: with batches of 50 the rewards move Q by at most 0.15 r_0 standard deviations of the noise. Only batches of tens
of thousands let Q move by its own size at sigma = 0.4; then what lets it is the 1/B, which is wrong.
"""

import math
from dataclasses import dataclass

from privrl.privacy.accounting.gdp import gdp_mu
from privrl.statistics.setting_checks import check_positive

REASONS = (
    "(a) What is carried to the next update is Q, not the released Q + g: the updates differ by all that went before, "
    "and do not compose. Audited epsilon grows with their number (`functional-noise-memory`).",
    "(b) All B rewards of a batch change with the reward function, not one: the 1/B is wrong "
    "(`functional-noise-batch`).",
    "(c) With few paths (J = 1 above all) the network learns -g, and Q + g tends to the exact Q* "
    "(`functional-noise-one-path`).",
    "(d) The difference of two functions of slope L has slope 2L, so the last term of C is 2 L^2/beta and not "
    "L^2/(2 beta); it does not shrink with the change of the rewards. (1 + beta^2) is less than the 1 + beta/2 of "
    "Lemma 7 where beta < 1/2. Lemma 10 lacks sigma: exp(-u^2/(2 sigma^2)). And the statement has C = Delta^2 in the "
    "place of Delta.",
)

_LARGEST_SIGMA = 5.0
_BOUND_ON_PATH = 51.7  # 5 * 10.34, for the largest sigma


@dataclass(frozen=True)
class Theorem4:
    """The conditions of Theorem 4 for one setting, and what they are worth.

    `smallest_sigma` is that of the printed statement, `..._of_proof` of the last line of the proof, and
    `..._repaired` with (b) and (d) corrected and exact accounting; no sigma repairs (a) and (c). `reward_influence`
    bounds how far the rewards, all of them in all updates, can move Q at any point, in units of the largest reward;
    compare with sigma.
    """

    epsilon: float
    delta: float
    sigma: float
    k: float
    smallest_sigma: float
    smallest_sigma_of_proof: float
    smallest_sigma_repaired: float
    total_delta: float
    reward_influence: float
    sigma_at_most_5: bool
    k_large_enough: bool
    sigma_large_enough: bool

    @property
    def met(self) -> bool:
        """Whether all three printed conditions hold. Even then the algorithm is not private."""
        return self.sigma_at_most_5 and self.k_large_enough and self.sigma_large_enough

    @property
    def warning(self) -> str:
        """The reasons why the theorem does not hold."""
        return "Theorem 4 does not hold, whatever its conditions say:\n" + "\n".join(REASONS)

    def __str__(self) -> str:
        def line(holds: bool, words: str) -> str:
            return f"  {'yes' if holds else 'no '}  {words}"

        rows = (
            f"wang-hegde Theorem 4 at epsilon = {self.epsilon:g}, total delta = {self.total_delta:.3g}",
            line(self.sigma_at_most_5, f"sigma = {self.sigma:.4g} is at most {_LARGEST_SIGMA:g}"),
            line(self.k_large_enough, f"k r_0 > 51.7 sqrt(beta), with k = {self.k:.4g}"),
            line(self.sigma_large_enough, f"sigma is at least {self.smallest_sigma:.4g}"),
            f"The proof arrives at {self.smallest_sigma_of_proof:.4g}; with (b) and (d) repaired, at "
            f"{self.smallest_sigma_repaired:.4g}.",
            f"All rewards together move Q by at most {self.reward_influence:.3g} of the largest reward."
            if self.reward_influence < 1e3
            else "Updates are large enough to learn.",
            self.warning,
        )
        return "\n".join(rows)


def theorem_4(
    *,
    epsilon: float,
    delta: float,
    samples: int,
    batch: int,
    refreshes: int,
    learning_rate: float,
    lipschitz: float,
    beta: float,
    largest_reward: float,
    k: float | None = None,
    sigma: float | None = None,
) -> Theorem4:
    """Evaluate Theorem 4 of wang-hegde at T = `samples`, B = `batch`, J = `refreshes`, alpha = `learning_rate`.

    Without `k`, take the smallest at which the extra delta is at most `delta`: C grows with k, so no other k needs
    less noise at that total. Without `sigma`, take the smallest that the printed statement allows.
    """
    check_positive(epsilon=epsilon, samples=samples, batch=batch, refreshes=refreshes, learning_rate=learning_rate)
    check_positive(lipschitz=lipschitz, beta=beta, largest_reward=largest_reward)
    if not 0 < delta < 1:
        raise ValueError(f"`delta` is {delta}; it must lie in (0, 1).")
    if batch > samples:
        raise ValueError(f"`batch` is {batch} and `samples` is {samples}; a batch has at most all samples.")
    n, L, r_0, alpha = samples / batch, lipschitz, largest_reward, learning_rate
    on_path = _BOUND_ON_PATH * math.sqrt(beta)
    if k is None:
        k = (on_path + math.sqrt(2 * math.log(max(refreshes / delta, 1.0)))) / r_0
    spread = 2 * alpha * L**2 * (2 * k + 1) * r_0
    C = (1 + beta**2) * (spread / batch) ** 2 + L**2 / (2 * beta)
    terms = n * math.log(math.e + epsilon / delta)
    smallest = math.sqrt(2 * terms) * C / epsilon
    sigma = smallest if sigma is None else sigma
    check_positive(sigma=sigma)
    return Theorem4(
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        k=k,
        smallest_sigma=smallest,
        smallest_sigma_of_proof=math.sqrt(4 * terms * C) / epsilon,
        smallest_sigma_repaired=math.sqrt(n * ((1 + beta / 2) * spread**2 + 2 * L**2 / beta)) / gdp_mu(epsilon, delta),
        total_delta=delta + refreshes * math.exp(-(max(k * r_0 - on_path, 0.0) ** 2) / 2),
        reward_influence=reward_influence(n * alpha * L**2),
        sigma_at_most_5=sigma <= _LARGEST_SIGMA,
        k_large_enough=k * r_0 > on_path,
        sigma_large_enough=sigma >= smallest,
    )


def reward_influence(total_rate: float) -> float:
    """Bound how far all rewards of a run can move Q, in units of the largest, when n alpha L^2 is `total_rate`.

    Two runs over the same transitions and the same noise, with rewards r and without rewards, differ after an
    update by |d| <= (1 + 2 alpha L^2) |d| + alpha L^2 r_0: (e^{2 n alpha L^2} - 1)/2 in all, close to n alpha L^2
    if that is small. Every |∇Q(x)ᵀ∇Q(y)| is at most L^2, which is how the paper's proof uses L.
    """
    return math.expm1(2 * total_rate) / 2 if 2 * total_rate < 700.0 else math.inf
