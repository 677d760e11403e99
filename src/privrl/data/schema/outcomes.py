"""Names of columns that sound like an outcome, and of outcomes that should be low.

Learning maximises the reward. A reward named `death` would therefore teach to kill, so the study must state its
direction. Only names are looked at, never values.
"""

import re
from typing import Literal

Good = Literal["high", "low"]
"""Which values of a reward are good."""

_LOW = re.compile(
    r"death|dead|died|deceas|mortal|expire|exitus|readmi|relaps|complicat|adverse|harm"
    r"|(?:^|[^a-z])(?:los|costs?|charges?|dod|tod|mort|muerte)(?:$|[^a-z])|length_?of_?stay"
    r"|nebenwirk|komplikation|unerw[üu]e?nscht|side_?effects?"
    r"|verstorben|gestorben|liegedauer|d[eé]c[eè]s|d[eé]c[eé]d[eé]|falleci"
)
_OUTCOME = re.compile(
    r"alive|surviv|outcome|reward|discharge|[üu]e?berleb|entlass|vital_?status|(?:^|[^a-z])[qd]alys?(?:$|[^a-z])"
    r"|(?:^|[^a-z])status_?(?:at_?)?(?:d(?:ay)?_?\d+|\d+_?(?:d|days?|tage?|m|months?|y|years?))(?:$|[^a-z])"
)
_NOT_SURVIVED = re.compile(r"(?:^|_)(?:not|non|no|nicht)_?(?:surviv|alive|[üu]e?berleb)")
_INVERTED = ("not_", "no_", "non_", "without_", "nicht_")


def sounds_low(column: str) -> bool:
    """Whether low values of a column with this name are probably good.

    >>> [sounds_low(name) for name in ("hospital_death", "not_death", "survived", "not_survived")]
    [True, False, False, True]
    """
    name = column.lower()
    if _NOT_SURVIVED.search(name) is not None:
        return True
    return not name.startswith(_INVERTED) and _LOW.search(name) is not None


def sounds_like_outcome(column: str) -> bool:
    """Whether a column with this name is probably an outcome, which a state must not hold."""
    name = column.lower()
    return _LOW.search(name) is not None or _OUTCOME.search(name) is not None


def check_direction(reward: str, good: Good | None) -> None:
    """Refuses a reward whose low values are good, or probably good.

    Raises:
        ValueError: `good` is "low", or is missing for a name that sounds like harm.
    """
    if good == "low":
        raise ValueError(
            f'`good` is "low": low values of `{reward}` are good, and learning maximises the reward. Let `privrl '
            f"prepare --good low` invert the column, or write 1 - {reward} into a new one."
        )
    if good is None and sounds_low(reward):
        raise ValueError(
            f"`reward` is the column `{reward}`, which sounds like an outcome that should be low, and learning "
            'maximises the reward. State which values are good: `good = "high"` or `good = "low"` in the schema, or '
            "`--good`."
        )
