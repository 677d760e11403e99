"""Study files: what `privrl serve` is told about a study, in TOML. A recipe name and numbers, never code."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["central", "local"]


@dataclass(frozen=True)
class StudyFile:
    """A study as its file declares it."""

    path: Path
    kind: Kind
    name: str
    recipe: str
    users: int
    epsilon: float
    delta: float | None
    store: str
