"""What commands on a table share besides its columns: the store, names for a report, and what is stated of a study."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from privrl.privacy.accounting.certificate import Certificate, check_stated
from privrl.reports.display_names import Names, read_names

_STATED = "For the person responsible for the study"
_NAMES = "Display names"


RulesOption = Annotated[
    Path | None,
    typer.Option("--rules", help="TOML file with public rules on actions, which the policy keeps at every decision."),
]


@dataclass(frozen=True)
class NameOptions:
    """What states and actions are called."""

    state_names: Annotated[
        Path | None,
        typer.Option(
            "--state-names", help="Text file with one name per line, the first of state 0.", rich_help_panel=_NAMES
        ),
    ] = None
    action_names: Annotated[
        Path | None,
        typer.Option(
            "--action-names", help="Text file with one name per line, the first of action 0.", rich_help_panel=_NAMES
        ),
    ] = None

    def read(self) -> Names:
        """The names, from their files."""
        return Names(read_names(self.state_names), read_names(self.action_names))


@dataclass(frozen=True)
class StudyNameOptions(NameOptions):
    """What states, actions and one unit are called: a certificate keeps the unit, and a page takes it from there."""

    unit_noun: Annotated[
        str | None,
        typer.Option("--unit-noun", help="The name of one privacy unit, for example patient.", rich_help_panel=_NAMES),
    ] = None


@dataclass(frozen=True)
class StatedOptions:
    """Free text that goes into certificate and report as it is; nothing checks it."""

    purpose: Annotated[
        str | None, typer.Option("--purpose", help="What the study is for.", rich_help_panel=_STATED)
    ] = None
    data_period: Annotated[
        str | None,
        typer.Option("--data-period", help="When the data were recorded, public.", rich_help_panel=_STATED),
    ] = None
    controller: Annotated[
        str | None,
        typer.Option("--controller", help="Who answers for the data (the controller).", rich_help_panel=_STATED),
    ] = None

    def on(self, certificate: Certificate) -> Certificate:
        """The certificate with what was stated."""
        return certificate.stating(self._given)

    def check(self) -> None:
        """Refuses text that a certificate would refuse, before anything is spent."""
        check_stated(self._given)

    @property
    def _given(self) -> dict[str, str]:
        return {name.replace("_", " "): text for name, text in asdict(self).items() if text is not None}
