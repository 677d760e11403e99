"""The certificate: what a result can reveal about one person, and everything needed to check the claim."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NotRequired, TypedDict, Unpack

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privrl.contracts.printing import html_table, printable, short_repr
from privrl.contracts.statistic import Adjacency
from privrl.contracts.untrusted import check_names, convert, read_json
from privrl.privacy.accounting.composition import epsilon_of, mu_of, rho_of
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.gdp import zcdp_epsilon
from privrl.privacy.accounting.ledger import Ledger, ReleaseRecord
from privrl.privacy.accounting.signature import sign, verify_signature
from privrl.privacy.noise.sources import ORIGIN_WORDS, Origin

Relation = Literal["record", "visits", "reports", "function"]
Notion = Literal["central", "joint", "local", "shuffle", "none"]

_NOTION = {
    "central": "a trusted curator saw the raw data; everything published is covered",
    "joint": "everything published and everything shown to other people is covered; what a person was shown is not",
    "local": "noise was added before anything left the person's device; no server is trusted",
    "shuffle": "devices randomised the answers, and a trusted shuffler removed the names of the senders",
    "none": "no privacy: the result may reveal anything about any person",
}
_LONGEST_STATEMENT = 500
_ADJACENCY = {
    "replace-one": "one {unit} replaced by any other (the number of {unit}s is public)",
    "add-remove": "one {unit} added or removed",
}


class StudyRecord(TypedDict):
    """The settings that a certificate is derived from: learner, privatizer, and the public number of people."""

    learner: dict[str, object]
    privatizer: dict[str, object]
    users: int | dict[str, object] | None


class Claimed(TypedDict):
    """The guarantee that a paper claims for the same noise."""

    epsilon: float
    delta: float
    rho: NotRequired[float]
    source: str


class Cost(TypedDict):
    """What a set of events costs; the attributes of a certificate that follow from its events."""

    epsilon: float
    epsilon_zcdp: float | None
    mu: float | None
    rho: float | None
    accountant: str


class Facts(TypedDict):
    """The attributes of a certificate that do not follow from a ledger."""

    unit: str
    bounds: Mapping[str, object]
    noise_source: Origin
    version: str
    learner: NotRequired[str]
    relation: NotRequired[Relation]
    neighbours: NotRequired[str]
    records_per_unit: NotRequired[int | None]
    block_distance: NotRequired[int]
    messages_per_user: NotRequired[int | None]
    return_range: NotRequired[tuple[float, float] | None]
    claimed: NotRequired[Claimed | None]
    notes: NotRequired[tuple[str, ...]]
    study: NotRequired[StudyRecord | None]
    opened: NotRequired[str]


@dataclass(frozen=True)
class Certificate:
    """Epsilon and delta with their meaning, and the events they follow from.

    >>> ledger = privrl.Central(epsilon=1, delta=1e-6).calibrate((privrl.contracts.Declared("visits"),))
    >>> facts = {"unit": "patient", "bounds": {}, "noise_source": "", "version": ""}
    >>> certificate = privrl.Certificate.of(ledger, delta=1e-6, notion="central", **facts)
    >>> certificate
    Certificate(central privacy, epsilon 1, delta 1e-06)
    >>> certificate.recomputed() == certificate.epsilon
    True

    Attributes:
        epsilon, delta: the guarantee; infinite if there is none.
        epsilon_zcdp: the larger epsilon that follows from rho alone, by the standard conversion: what a reader who
            trusts only zero-concentrated privacy of discrete Gaussian noise may rely on.
        rho, mu: the same cost as zero-concentrated and Gaussian privacy, if these apply.
        notion: central, joint, local, shuffle or none.
        adjacency, unit: what it means for two data sets to be neighbours.
        bounds: what the learner enforced on every record, for readers; no decision depends on it.
        events: the calibrated cost of every declared release; epsilon follows from these alone.
        releases: how often each release was declared and made, with sensitivity and noise scale.
        accountant: how the events were composed.
        noise_source: where the noise came from.
        relation: what two neighbours differ by: one record, all visits or all reports of a person, or a function.
        neighbours: the same for readers, if it is not one record.
        records_per_unit: the largest number of records of one unit that count; `None` if the secret is not a set of
            records.
        block_distance: the smallest number of blocks between two records of one unit.
        messages_per_user: the number of messages of one device that are covered, if devices add the noise.
        return_range: the smallest and the largest sum that one record may state, if they are enforced.
        group_shares: if units are split into groups, the probability of each group.
        claimed: for recipes as published: the epsilon that the paper claims for the same noise.
        study: the settings that events and bounds are derived from: of the learner and of the privatizer, and the
            public number of people if it is fixed in advance.
        opened: the UTC date on which the study was opened, fixed before any record was read.
        result_sha256: the hash of the result that this certificate is about; `Result` fills it in.
        files: the SHA-256 of every file that is saved with this certificate, by name.
        signature: an Ed25519 signature over everything else here, in base64; empty if it is not signed.
        stated: statements of the study team, such as the study's purpose: text by name. A signature covers them;
            privrl does not verify them.

    Raises:
        ValueError: JSON that is read is not a certificate.
        SignatureError: a signature that is verified is not that of the owner of the key.
    """

    epsilon: float
    delta: float
    epsilon_zcdp: float | None
    rho: float | None
    mu: float | None
    notion: Notion
    adjacency: Adjacency
    unit: str
    bounds: Mapping[str, object]
    events: tuple[Event, ...]
    releases: tuple[ReleaseRecord, ...]
    accountant: str
    noise_source: Origin
    version: str
    learner: str = ""
    relation: Relation = "record"
    neighbours: str = ""
    records_per_unit: int | None = None
    block_distance: int = 0
    messages_per_user: int | None = None
    return_range: tuple[float, float] | None = None
    group_shares: Mapping[str, float] = field(default_factory=dict)
    claimed: Claimed | None = None
    notes: tuple[str, ...] = field(default=())
    study: StudyRecord | None = None
    opened: str = ""
    result_sha256: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    signature: str = ""
    stated: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger: Ledger, *, delta: float, notion: Notion, **facts: Unpack[Facts]) -> "Certificate":
        """Certifies the declared cost of a ledger; `facts` are those attributes that do not follow from it."""
        events = ledger.events()
        return cls(
            **cost_of(events, delta, ledger.adjacency),
            delta=delta,
            notion="none" if any(e.mechanism == "none" for e in events) else notion,
            adjacency=ledger.adjacency,
            events=events,
            releases=tuple(ledger.releases()),
            group_shares=ledger.groups,
            **facts,
        )

    @property
    def limits(self) -> dict[str, object]:
        """Every public limit under the name that readers see: those of the learner, and how often one unit counts."""
        counted = {
            "records per unit": self.records_per_unit,
            "blocks from one record of a unit to the next": self.block_distance or None,
            "messages per user": self.messages_per_user,
        }
        return {**self.bounds, **{words: limit for words, limit in counted.items() if limit is not None}}

    def recomputed(self) -> float:
        """Epsilon from the events alone."""
        return cost_of(self.events, self.delta, self.adjacency)["epsilon"]

    def canonical(self) -> bytes:
        """The bytes that are signed: everything but the signature, as JSON with sorted keys and no spaces."""
        content = {name: value for name, value in self.to_json().items() if name != "signature"}
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def signed(self, key: Ed25519PrivateKey) -> "Certificate":
        """The same certificate with a signature. A certificate that names no result is refused."""
        if not self.result_sha256:
            raise ValueError("This certificate is not bound to a result yet. Sign that of a `Result`.")
        return replace(self, signature=sign(self.canonical(), key))

    def stating(self, texts: Mapping[str, str]) -> "Certificate":
        """The same certificate with statements about the study. Add them before you sign."""
        if self.signature:
            raise ValueError("This certificate is signed already. Add the statements first, then sign.")
        check_stated(texts)
        return replace(self, stated={**self.stated, **texts})

    def verify(self, key: Ed25519PublicKey) -> None:
        """Raises `SignatureError` unless the owner of `key` signed exactly this certificate."""
        verify_signature(self.canonical(), self.signature, key)

    def to_json(self) -> dict[str, object]:
        """A JSON object; infinities are written as the string "inf"."""
        content = asdict(self)
        return _map(content, lambda x: "inf" if isinstance(x, float) and math.isinf(x) else x)

    @classmethod
    def from_json(cls, content: object) -> "Certificate":
        """The certificate that `to_json` wrote; anything else is a `ValueError` that names the field."""
        what = "The certificate"
        written: dict[str, object] = convert(content, dict, what)
        texts = {name: written[name] for name in ("stated",) if name in written}
        fields = _map(written, lambda x: math.inf if isinstance(x, str) and x == "inf" else x)
        certificate = convert(fields | texts, cls, what)
        check_names(written, certificate.to_json(), what)
        return certificate

    @property
    def guarantee(self) -> str:
        """The guarantee in a few words, for example "central privacy, epsilon 1, delta 1e-06"."""
        if self.notion == "none" or math.isinf(self.epsilon):
            return "no privacy"
        simulated = ", simulated noise" if self.noise_source == "seed" else ""
        return f"{self.notion} privacy, epsilon {self.epsilon:.4g}, delta {self.delta:.3g}{simulated}"

    def summary(self) -> dict[str, object]:
        """The rows of a small table about this certificate, by name."""
        return {
            "Guarantee": self.guarantee,
            "Unit": self.unit,
            "Neighbours": self.neighbours or self.adjacency,
            "Noise": ORIGIN_WORDS[self.noise_source],
            "Opened": self.opened,
            "Signature": "Ed25519, to be checked with a public key" if self.signature else "none",
        }

    def __repr__(self) -> str:
        return short_repr("Certificate", self.learner, self.guarantee)

    def _repr_html_(self) -> str:
        return html_table(f"Privacy certificate ({self.learner})", self.summary())

    def __str__(self) -> str:
        lines = [f"Privacy certificate ({self.learner or 'no learner'}, privrl {self.version})"]
        if math.isinf(self.epsilon):
            lines.append("  guarantee   none: epsilon is infinite")
        else:
            lines.append(f"  guarantee   epsilon = {self.epsilon:.4g}, delta = {self.delta:.3g}")
        if self.epsilon_zcdp is not None and math.isfinite(self.epsilon_zcdp):
            lines.append(f"  by zCDP     epsilon = {self.epsilon_zcdp:.4g}, without the exact Gaussian argument")
        strength = [f"{k} = {v:.4g}" for k, v in (("mu", self.mu), ("rho", self.rho)) if v is not None and v < math.inf]
        if strength:
            lines.append(f"  that is     {', '.join(strength)}; composed by {self.accountant}")
        lines.append(f"  notion      {self.notion}: {_NOTION[self.notion]}")
        lines.append(f"  neighbours  {self.neighbours or _ADJACENCY[self.adjacency].format(unit=self.unit)}")
        lines.append(f"  noise       {ORIGIN_WORDS[self.noise_source]}")
        lines.extend(f"  bound       {name}: {value}" for name, value in self.limits.items())
        for release in self.releases:
            noise = release["noise"][-1] if release["noise"] else None
            scale = f", sensitivity {noise['sensitivity']:.4g}, noise scale {noise['scale']:.4g}" if noise else ""
            lines.append(
                f"  release     {release['name']} ({release['access']}): {release['counted']} of "
                f"{release['declared']} declared{scale}"
            )
        lines.extend(f"  stated      {name}: {text}" for name, text in self.stated.items())
        if self.claimed:
            lines.append(f"  claimed     epsilon = {self.claimed['epsilon']:.4g} by {self.claimed['source']}")
        lines.extend(f"  note        {note}" for note in self.notes)
        if self.opened:
            lines.append(f"  opened      {self.opened} (UTC), before any record was read")
        if self.result_sha256:
            lines.append(f"  result      SHA-256 {self.result_sha256}")
        lines.append(f"  signature   {'Ed25519, to be checked with a public key' if self.signature else 'none'}")
        return "\n".join(map(printable, lines))


def cost_of(events: Sequence[Event], delta: float, adjacency: Adjacency) -> Cost:
    """Epsilon at delta, with rho and mu if they exist, and the accountant that applied.

    A choice is the only release about its group, and pure. The cost is therefore the larger of two: the epsilon of the
    choice, and that of all other releases.
    """
    choices = [event for event in events if event.mechanism == "exponential"]
    if choices and len(choices) < len(events):
        rest = cost_of([event for event in events if event.mechanism != "exponential"], delta, adjacency)
        zcdp = rest["epsilon_zcdp"]
        return {
            "epsilon": float(epsilon_of(events, delta, adjacency=adjacency)),
            "epsilon_zcdp": None if zcdp is None else max(zcdp, *(event.parameter for event in choices)),
            "mu": None,
            "rho": None if rest["rho"] is None else float(rho_of(events)),
            "accountant": f"{rest['accountant']}, and pure privacy of the choice, whichever is more",
        }
    mu = mu_of(events)
    sampled = any(event.sampling < 1 for event in events)
    if mu is not None:
        accountant = "exact Gaussian accounting"
    elif delta == 0:
        accountant = "pure composition"
    elif len(events) == 1 and events[0].mechanism == "shuffled":
        accountant = "amplification by shuffling"
    else:
        accountant = "the privacy loss distribution (dp-accounting)"
    amplified = sampled or any(event.mechanism == "shuffled" for event in events)
    rho = None if amplified else float(rho_of(events))
    return {
        "epsilon": float(epsilon_of(events, delta, adjacency=adjacency)),
        "epsilon_zcdp": None if rho is None or mu is None or delta == 0 else zcdp_epsilon(rho, delta),
        "mu": mu,
        "rho": rho,
        "accountant": accountant,
    }


def check_stated(texts: Mapping[str, str]) -> None:
    """Refuses statements that are not one line of text, or are too long for a certificate."""
    for name, text in texts.items():
        if not text.strip() or not text.isprintable() or len(text) > _LONGEST_STATEMENT:
            raise ValueError(
                f"The {name} has {len(text)} characters; give one line of printable text with at most "
                f"{_LONGEST_STATEMENT}, and not only spaces."
            )


def _map(content: object, change: Callable[[object], object]) -> Any:
    if isinstance(content, Mapping):
        return {key: _map(value, change) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_map(value, change) for value in content]
    return change(content)


def read_certificate(content: str | bytes) -> Certificate:
    """Reads a certificate from the text of a `certificate.json`; a `ValueError` says what is wrong with it."""
    return Certificate.from_json(read_json(content, "The certificate"))
