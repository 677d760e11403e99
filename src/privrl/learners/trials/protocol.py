"""The protocol of a pilot: everything that is fixed before the first person is enrolled, as a TOML file with a hash.

```toml
name = "sepsis-pilot"
people = 5000               # the largest number of people
looks = 20                  # equal blocks of people; or their ends: [250, 500, 5000]
epsilon = 1.0
delta = 1e-6
patience = 2592000          # seconds after a person's arrival within which the record must come

[outcome]
name = "survival"
low = 0.0                   # public bounds; values beyond them are clipped
high = 1.0
missing = 0.0               # what a missing record counts as

[[arms]]
name = "practice"           # the first arm is current practice: the clinician decides

[[arms]]
name = "advice"
policy = "policy"           # a saved folder, relative to this file
use = "whole"               # or "assisted"
sha256 = "..."              # of the policy
file = "pilot-advice.json"  # optional: the same policy for apps, relative to this file
file_sha256 = "..."         # of that file

[[phases]]                  # optional: shares of the arms from a look on
start = 1
shares = [0.9, 0.1]

[[phases]]
start = 3
shares = [0.5, 0.5]

[[secondary]]               # optional: further outcomes, each with its share of mu^2
name = "days"
low = 0.0
high = 30.0
missing = 30.0
share = 0.1

[[subgroups]]               # optional: partitions of people by a public property, stored at enrolment
name = "sex"
groups = ["female", "male"]
share = 0.1
```

The entry `unit` says what the ids of people identify, and the table `[serve]` holds settings of the service. They are
not part of the protocol, and neither are comments and the order of entries: the hash is that of the values. The store
and the certificate of the pilot state the unit.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float, Int

from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, NonPrivate

Spending = Literal["obrien-fleming", "pocock"]
SERVE, UNIT = "serve", "unit"
"""Entries of a protocol file that are not part of the protocol."""
_REFUSED = "The protocol is refused: "
_MOST_PEOPLE, _MOST_LOOKS, _MOST_ARMS = 2**31, 50, 8


@dataclass(frozen=True)
class Arm:
    """One arm of a trial.

    >>> [arm.name for arm in (privrl.Arm("practice"), privrl.Arm("advice", policy="policy"))]
    ['practice', 'advice']

    Attributes:
        name: its name.
        policy: the folder of a saved policy; empty for current practice.
        use: whether the whole advice is followed, or the assisted policy of the folder.
        sha256: the hash of that policy, so that it cannot change.
        file: the same policy as JSON, for apps that compute its advice; empty if the service answers them.
        file_sha256: the hash of that file.
    """

    name: str
    policy: str = ""
    use: Literal["whole", "assisted"] = "whole"
    sha256: str = ""
    file: str = ""
    file_sha256: str = ""


@dataclass(frozen=True)
class Outcome:
    """A number that is recorded once for each person.

    >>> privrl.Outcome("days at home", low=0, high=90).missing_value
    0.0

    Attributes:
        name: its name.
        low, high: public bounds; values beyond them are clipped. Larger is better.
        missing: the value that a missing record counts as; the lower bound if it is not given.
        share: the share of mu^2 of a secondary outcome.
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    missing: float | None = None
    share: float = 0.0

    @property
    def missing_value(self) -> float:
        """v: the value of a missing record, rescaled to [0, 1]."""
        missing = self.low if self.missing is None else self.missing
        return (missing - self.low) / (self.high - self.low)

    @property
    def centre(self) -> float:
        """c: v moved by 1/8 towards 1/2, at most to 1/2."""
        v = self.missing_value
        return min(v + 0.125, 0.5) if v <= 0.5 else max(v - 0.125, 0.5)


@dataclass(frozen=True)
class Phase:
    """The shares of the arms from a look on.

    Attributes:
        start: the first look of the phase, from 1.
        shares: the share of each arm.
    """

    start: int
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Partition:
    """A partition of people by a property that is public and stored at enrolment.

    Attributes:
        name: the property.
        groups: its values.
        share: the share of mu^2 of its releases.
    """

    name: str
    groups: tuple[str, ...]
    share: float


@dataclass(frozen=True)
class Protocol:
    """Everything about a pilot that is fixed before the first person is enrolled.

    >>> arms = (privrl.Arm("practice"), privrl.Arm("advice"))
    >>> protocol = privrl.Protocol("pilot", 1_000, arms, privrl.Outcome("survival"), epsilon=1.0, delta=1e-6)
    >>> privrl.Protocol.from_toml(protocol.to_toml()) == protocol
    True

    Attributes:
        name: at most 40 lower-case letters, digits and hyphens.
        people: the largest number of people N.
        arms: current practice, and one or more policies.
        outcome: the outcome that decides, with its public bounds.
        epsilon, delta: the budget of all releases together.
        looks: the number of equal blocks, or the ends of the blocks.
        patience: seconds after a person's arrival within which the record must come.
        better, worse: the one-sided error rates. Several policies share them equally.
        spending_better, spending_worse: how the error rates are spent over the looks.
        after_better: what new people get after "better": the policy, or practice until a committee has decided.
            After "worse", and without a verdict, they get practice.
        phases: the shares of the arms; equal if there are none.
        secondary: further outcomes, without a verdict.
        subgroups: partitions of people, whose results are reported at each look.

    Raises:
        ValueError: an entry is missing, unknown or out of its range.
    """

    name: str
    people: int
    arms: tuple[Arm, ...]
    outcome: Outcome
    epsilon: float
    delta: float
    looks: int | tuple[int, ...] = 20
    patience: float = 30 * 86_400.0
    better: float = 0.025
    worse: float = 0.05
    spending_better: Spending = "obrien-fleming"
    spending_worse: Spending = "pocock"
    after_better: Literal["policy", "practice"] = "policy"
    phases: tuple[Phase, ...] = ()
    secondary: tuple[Outcome, ...] = ()
    subgroups: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(f"{_REFUSED}{problem}")

    def _problems(self) -> Sequence[str]:
        """What is wrong with the protocol, the first thing first."""
        found: list[str] = []

        def check(holds: bool, problem: str) -> None:
            if not holds:
                found.append(problem)

        letters = set("abcdefghijklmnopqrstuvwxyz0123456789-")
        check(
            0 < len(self.name) <= 40 and set(self.name) <= letters and self.name[0] != "-",
            f"`name` is {self.name!r}; use at most 40 lower-case letters, digits and hyphens, not starting with a "
            "hyphen.",
        )
        check(2 <= self.people <= _MOST_PEOPLE, f"`people` is {self.people}; it must lie in [2, {_MOST_PEOPLE}].")
        arms = [arm.name for arm in self.arms]
        check(
            2 <= len(arms) <= _MOST_ARMS and len(set(arms)) == len(arms) and all(arms),
            f"`arms` are {arms}; give current practice first and one to {_MOST_ARMS - 1} policies, with different "
            "names.",
        )
        check(not arms or not self.arms[0].policy, "the first of `arms` is current practice, so it has no `policy`.")
        for arm in self.arms:
            check(
                bool(arm.file) == bool(arm.file_sha256) and (not arm.file or bool(arm.policy)),
                f"`file` and `file_sha256` of the arm `{arm.name}` belong together, and to a `policy`. `privrl pilot "
                "init` writes them.",
            )
        number = self.looks if isinstance(self.looks, int) else len(self.looks)
        check(
            1 <= number <= min(_MOST_LOOKS, self.people), f"`looks` must be 1 to {_MOST_LOOKS}, and at most `people`."
        )
        if not isinstance(self.looks, int):
            increasing = all(a < b for a, b in itertools.pairwise((0, *self.looks)))
            check(
                increasing and self.looks[-1:] == (self.people,),
                f"`looks` are {list(self.looks)}; the ends of blocks increase, and the last one is `people`.",
            )
        for rate in ("better", "worse"):
            check(0 < getattr(self, rate) < 0.5, f"`{rate}` is {getattr(self, rate)}; it must lie in (0, 0.5).")
        check(self.epsilon > 0, f"`epsilon` is {self.epsilon}; it must be positive.")
        check(0 < self.delta < 1, f"`delta` is {self.delta}; it must lie in (0, 1).")
        check(0 < self.patience < math.inf, f"`patience` is {self.patience} seconds; it must be positive and finite.")
        for outcome in self.outcomes:
            check(
                math.isfinite(outcome.low) and math.isfinite(outcome.high) and outcome.low < outcome.high,
                f"the bounds of outcome `{outcome.name}` are {outcome.low} and {outcome.high}; the lower one must be "
                "smaller, and both finite.",
            )
            check(
                outcome.missing is None or outcome.low <= outcome.missing <= outcome.high,
                f"`missing` of outcome `{outcome.name}` is {outcome.missing}; it must lie within the bounds.",
            )
        names = [*(outcome.name for outcome in self.outcomes), *(part.name for part in self.subgroups)]
        check(len(set(names)) == len(names) and all(names), f"outcomes and subgroups need different names: {names}.")
        taken = {"all", *(f"{self.outcome.name} by {part.name}" for part in self.subgroups)}  # as in `Trial`
        check(taken.isdisjoint(names), f"outcomes and subgroups may not be called {sorted(taken)}: results are.")
        shares = [outcome.share for outcome in self.secondary] + [part.share for part in self.subgroups]
        check(
            all(share > 0 for share in shares) and sum(shares) < 1 and self.outcome.share == 0,
            "each secondary outcome and each partition needs a positive `share` of mu^2, together below 1; the rest "
            "is the share of `outcome`, which has none of its own.",
        )
        for part in self.subgroups:
            check(
                len(part.groups) >= 2 and len(set(part.groups)) == len(part.groups) and all(part.groups),
                f"`groups` of `{part.name}` are {list(part.groups)}; give two or more different names.",
            )
            check("/" not in "".join(part.groups), f"`groups` of `{part.name}` may not contain a slash.")
        starts = [phase.start for phase in self.phases]
        check(
            not starts
            or (starts[0] == 1 and all(a < b for a, b in itertools.pairwise(starts)) and starts[-1] <= number),
            f"`start` of the phases is {starts}; the first phase starts at look 1, and later ones at later looks.",
        )
        for phase in self.phases:
            check(
                len(phase.shares) == len(arms)
                and min(phase.shares, default=0) > 0
                and abs(sum(phase.shares) - 1) <= 1e-9,
                f"`shares` of the phase that starts at look {phase.start} are {list(phase.shares)}; each arm needs a "
                "positive share, and they must add up to 1.",
            )
        return found

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """All outcomes; the first one decides. A record holds their values in this order."""
        return (self.outcome, *self.secondary)

    @property
    def policies(self) -> tuple[Arm, ...]:
        """The arms other than current practice."""
        return self.arms[1:]

    @property
    def ends(self) -> Int[np.ndarray, " L"]:
        """The public ends of the blocks: the number of people at each look."""
        if not isinstance(self.looks, int):
            return np.array(self.looks)
        return np.rint(self.people * np.arange(1, self.looks + 1) / self.looks).astype(int)

    @property
    def phase_of(self) -> Int[np.ndarray, " L"]:
        """The number of the phase of each block."""
        starts = [phase.start for phase in self.phases] or [1]
        return np.searchsorted(starts, np.arange(1, len(self.ends) + 1), side="right") - 1

    @property
    def shares(self) -> Float[np.ndarray, "L A"]:
        """The share of each arm in each block, as long as no arm is closed."""
        equal = Phase(1, (1 / len(self.arms),) * len(self.arms))
        return np.array([phase.shares for phase in self.phases or (equal,)])[self.phase_of]

    @property
    def privatizer(self) -> AbstractPrivatizer:
        """A trusted curator with the budget of the protocol; without noise if epsilon is infinite."""
        if math.isinf(self.epsilon):
            return NonPrivate()
        return Central(epsilon=self.epsilon, delta=self.delta, continual="square-root")  # as boundaries assume

    def cells_of(self, group: str) -> tuple[int, ...]:
        """The number of a person's group in each partition.

        Arguments:
            group: the names of the groups, one for each partition in the order of the protocol, separated by a slash;
                empty if there are no subgroups.
        """
        names = group.split("/") if group else []
        parts = self.subgroups
        if len(names) != len(parts) or any(name not in part.groups for name, part in zip(names, parts, strict=True)):
            allowed = " / ".join(f"{part.name}: {', '.join(part.groups)}" for part in parts) or "no subgroups"
            raise ValueError(
                f"The group of a person must name one group of each partition, separated by `/` ({allowed})."
            )
        return tuple(part.groups.index(name) for name, part in zip(names, parts, strict=True))

    def to_json(self) -> dict[str, object]:
        """The protocol as plain JSON, without entries that are empty."""
        return _plain(self)

    @property
    def sha256(self) -> str:
        """The hash of all values. Certificates name it."""
        same = msgspec.convert(dataclasses.asdict(self), Protocol)  # 1 and 1.0 are the same number
        content = json.dumps(dataclasses.asdict(same), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    def to_toml(self) -> str:
        """The protocol as a TOML file."""
        content: dict[str, Any] = self.to_json()
        plain = {name: value for name, value in content.items() if not _is_table(value)}
        lines = [f"{name} = {_toml(value)}" for name, value in plain.items()]
        for name, value in content.items():
            if _is_table(value):
                for one in value if isinstance(value, list) else [value]:
                    lines += ["", f"[[{name}]]" if isinstance(value, list) else f"[{name}]"]
                    lines += [f"{entry} = {_toml(inner)}" for entry, inner in one.items()]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> "Protocol":
        """Reads what `to_json` wrote. Unknown entries are refused."""
        _refuse_unknown(content)
        try:
            return msgspec.convert(content, cls)
        except msgspec.ValidationError as error:
            message = str(error).removeprefix(_REFUSED)  # of `__post_init__`
            raise ValueError(f"{_REFUSED}{message}") from error

    @classmethod
    def from_toml(cls, text: str) -> "Protocol":
        """Reads the text of a TOML file; the entry `unit` and the table `[serve]` are ignored."""
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{_REFUSED}it is not TOML ({error}).") from error
        return cls.from_json({name: value for name, value in content.items() if name not in (SERVE, UNIT)})

    @classmethod
    def read(cls, path: str | Path) -> "Protocol":
        """Reads a protocol file."""
        return cls.from_toml(Path(path).read_text())


_TABLES: dict[str, type] = {
    "arms": Arm,
    "outcome": Outcome,
    "phases": Phase,
    "secondary": Outcome,
    "subgroups": Partition,
}


def _refuse_unknown(content: Mapping[str, object]) -> None:
    """Refuses entries that the protocol does not know: a misspelt one would silently have its default."""
    tables = {"": [content]} | {
        name: [one for one in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(one, Mapping)]
        for name, value in content.items()
    }
    for name, rows in tables.items():
        known = {f.name for f in dataclasses.fields(_TABLES.get(name, Protocol))}
        for unknown in sorted({entry for row in rows for entry in row} - known):
            where = f" in `{name}`" if name else ""
            raise ValueError(f"{_REFUSED}unknown entry `{unknown}`{where}. Known: {sorted(known)}.")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if not dataclasses.is_dataclass(value):
        return value
    entries = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Arm) and not value.policy:
        entries = {"name": value.name}
    if isinstance(value, Outcome) and not value.share:
        del entries["share"]
    return {name: _plain(own) for name, own in entries.items() if own is not None and own not in ("", ())}


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict) for one in value))


def _toml(value: Any) -> str:
    """A value as TOML, which writes text and lists as JSON does."""
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
