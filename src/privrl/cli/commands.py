"""Commands that are imported when they are called, and refuse an option that is given twice."""

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from privrl.cli.output import emit_error


class Command(TyperCommand):
    """A command that takes every option once, unless the option is a list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)  # the parser empties its list
        try:
            return self._parse(ctx, args)
        except Exception as error:
            if hasattr(error, "format_message"):  # an error of usage, which typer prints and then leaves
                emit_error(error.format_message(), given)
            raise

    def _parse(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(option for option in order if option.param_type_name == "option").items():
            if times > 1 and not option.multiple:
                raise ValueError(f"`{max(option.opts, key=len)}` was given {times} times. Give it once.")
        return super().parse_args(ctx, args)


class App(typer.Typer):
    """A group of such commands."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=Command, **options)


class Deferred(TyperCommand):
    """A command or group of which only the name and one line are known until it is called.

    Arguments:
        place: the module, and its function or `App`, as `module:name`.
        summary: the first line of its help.
    """

    def __init__(self, name: str, place: str, *, panel: str, summary: str) -> None:
        super().__init__(name, help=summary, rich_help_panel=panel, rich_markup_mode="rich")
        self._place = place

    def load(self) -> TyperCommand | TyperGroup:
        """The command itself."""
        module, _, attribute = self._place.partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            app = App(add_completion=False, rich_markup_mode="rich")
            app.command(self.name)(found)
            found = app
        command: Any = typer.main.get_command(found)
        command.name = self.name
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent=parent, **extra)
