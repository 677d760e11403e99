"""Options that several commands share, written once as a dataclass and spread over their signatures."""

import dataclasses
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_type_hints

from typer.models import OptionInfo

from privrl.cli.output import complain
from privrl.data.schema.table_schema import TableError
from privrl.privacy.accounting.privacy_budget import PrivacyWarning

_ALIASES = {"key": "seed", "return_range": "return_bound"}  # arguments of the library, and the options for them


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command of which every parameter that is a dataclass of options is given as these options, one by one.

    The fields of these dataclasses are annotated as options and have defaults.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        options = get_type_hints(groups[name], include_extras=True)
        parameters += [
            inspect.Parameter(f.name, parameter.KEYWORD_ONLY, default=f.default, annotation=options[f.name])
            for f in dataclasses.fields(groups[name])
        ]

    @functools.wraps(command)
    def spread(**options: Any) -> None:
        held = {
            name: group(**{f.name: options.pop(f.name) for f in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        with _naming_options(names):
            command(**options, **held)

    names = [p.name for p in parameters if any(isinstance(m, OptionInfo) for m in _metadata(p))]
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {p.name: p.annotation for p in parameters}
    return spread


def _metadata(parameter: inspect.Parameter) -> tuple[Any, ...]:
    return getattr(parameter.annotation, "__metadata__", ())


@contextmanager
def _naming_options(names: Sequence[str]) -> Iterator[None]:
    """Names options in errors and warnings of the library, which name arguments: `delta` becomes `--delta`. Names of
    columns and of fields of files stay."""

    def option(found: re.Match[str]) -> str:
        name = _ALIASES.get(found[1], found[1])
        return flag(name) if name in names else found[0]

    def with_flags(text: str) -> str:
        return re.sub(r"(?<!olumn )(?<!malformed: )`([a-z_]+)`", option, text)

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if issubclass(category, PrivacyWarning):
            complain(f"Warning: {with_flags(str(message))}")
        else:
            shown(message, category, *where)

    with warnings.catch_warnings():
        warnings.simplefilter("always", PrivacyWarning)
        shown = warnings.showwarning
        warnings.showwarning = show  # type: ignore[assignment]
        try:
            yield
        except TableError:  # which quotes names of columns
            raise
        except ValueError as error:
            if error.args and isinstance(error.args[0], str):
                error.args = (with_flags(error.args[0]), *error.args[1:])
            raise


def given(group: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Those options of a group that were given, by name; of `names` alone, if there are any."""
    found = {f.name: getattr(group, f.name) for f in dataclasses.fields(group) if names is None or f.name in names}
    return {name: value for name, value in found.items() if value is not False and value not in (None, (), [])}


def refuse(options: dict[str, Any], why: str) -> None:
    """An error that names the first of these options, if there is any."""
    if options:
        raise ValueError(f"{flag(next(iter(options)))} {why}. Leave it out.")


def flag(name: str) -> str:
    return f"`--{name.replace('_', '-')}`"
