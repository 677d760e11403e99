"""What `make test-slow` checks at run time: the types of all arguments and results of privrl."""

from collections.abc import Callable
from typing import TypeVar

import typer
from beartype import BeartypeConf, BeartypeHintOverrides, beartype

# An integer may stand for a float. Typer passes commands a context of a private class instead of `typer.Context`.
_CONF = BeartypeConf(is_pep484_tower=True, hint_overrides=BeartypeHintOverrides({typer.Context: object}))

_Checked = TypeVar("_Checked", bound=Callable[..., object])


def check(checked: _Checked) -> _Checked:
    return beartype(checked, conf=_CONF)
