"""`privrl serve init`, `run`, `check` and `key`: live studies over HTTP."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privrl.cli.commands import App
from privrl.cli.compilation import keep_compiled_programs
from privrl.cli.output import complain, say, show_table

if TYPE_CHECKING:  # an extra, which may not be installed
    from privrl.service.access import AccessKey
    from privrl.service.study_file import StudyFile

serve = App(name="serve", help="Serve live studies to apps and devices over HTTP.", no_args_is_help=True)
key = App(name="key", help="Keys of apps, devices and operators; kept as hashes.", no_args_is_help=True)
serve.add_typer(key)

StudyFileArgument = Annotated[Path, typer.Argument(help="A study file, in TOML.")]
NameOption = Annotated[str, typer.Option("--name", help="Name of the key; unique in its study.")]
_TLS = "Beyond this machine"


@serve.command()
def init(file: StudyFileArgument) -> None:
    """Declare a study for good, make its store and print its first keys. They cannot be shown again."""
    check_installed()
    from privrl.privacy.store.release_store import place_of
    from privrl.service.access import KeyFile
    from privrl.service.opening import begin_study, read_identity
    from privrl.service.study_file import read_study_file

    study = read_study_file(file)
    keep_compiled_programs()
    begin_study(study)
    place = place_of(study.store)
    say(f"The study `{study.name}` is declared. Its store is `{place}`, and its audit log is `{study.log_place.name}`.")
    if study.kind == "local":
        say(f"The SHA-256 of its document, for its apps: {read_identity(study)}")
    keys = KeyFile(study.keys_place)
    if keys.read():
        say(f"It keeps the keys in `{keys.path.name}`; `privrl serve key add` makes more.")
        return
    first = {"central": "app", "local": "device" if study.devices == "key" else None}[study.kind]
    say("Its first keys, which cannot be shown again:")
    for role in (first, "operator"):
        if role is not None:
            say(f"  {role:<9} {keys.add(role, f'first {role}')}")  # type: ignore[arg-type]


@serve.command()
def run(
    files: Annotated[list[Path], typer.Argument(help="Study files; begin each study with `init` first.")],
    listen: Annotated[str, typer.Option("--listen", help="HOST:PORT for apps and devices.")] = "127.0.0.1:8080",
    operator: Annotated[str, typer.Option("--operator", help="HOST:PORT for the operator.")] = "127.0.0.1:8081",
    operator_host: Annotated[
        list[str] | None, typer.Option("--operator-host", help="Another host name of the operator's address.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="Certificate chain, in PEM.", rich_help_panel=_TLS)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="Its private key, in PEM.", rich_help_panel=_TLS)
    ] = None,
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy", help="A proxy in front terminates TLS and limits clients.", rich_help_panel=_TLS
        ),
    ] = False,
) -> None:
    """Serve studies until the process is told to end."""
    check_installed()
    from privrl.service.access import KeyFile
    from privrl.service.listening import Address, Listeners
    from privrl.service.listening import serve as serve_studies
    from privrl.service.study_file import read_study_file

    addresses = Address.from_text(listen), Address.from_text(operator)
    listeners = Listeners(*addresses, tuple(operator_host or ()), tls_cert, tls_key, behind_proxy)
    listeners.check()
    if listeners.warning:
        complain(listeners.warning)
    keep_compiled_programs()
    studies = [read_study_file(file) for file in files]
    for study in studies:
        _warn_about_keys(study, KeyFile(study.keys_place).read().values())
    serve_studies(studies, listeners, say)


@serve.command()
def check(file: StudyFileArgument) -> None:
    """Verify a study file and its store, and show what `run` would do. It changes nothing."""
    check_installed()
    from privrl.privacy.store.release_store import store_exists
    from privrl.service.access import KeyFile
    from privrl.service.opening import check_same_study, declare_in_memory, open_store, read_identity
    from privrl.service.study_file import read_study_file

    study = read_study_file(file)
    keys = KeyFile(study.keys_place).read()
    keep_compiled_programs()
    if not store_exists(study.place):
        declare_in_memory(study)
        say(f"`{file}` is valid. The study was not begun yet: `privrl serve init {file}`.")
        return
    with open_store(study) as store:
        shown = store.describe()
    check_same_study(study, shown)
    if study.kind == "local":
        say(f"The SHA-256 of its document, for its apps: {read_identity(study)}")
    tickets = sum(shown["queues"].values()) + sum(shown["ranges"].values())
    released = sum(row["status"] in ("released", "redrawn") for row in shown["releases"])
    people = "any number of people" if study.users is None else f"{study.users:,} {study.counting}"
    say(f"`{study.name}` is a {study.kind} study of {people} with `{study.recipe}`; the store is intact.")
    say(f"Tickets issued: {tickets:,}. Releases: {released:,}.")
    _warn_about_keys(study, keys.values())
    say(
        "It was purged: `run` would serve its certificate only."
        if shown["purged"]
        else "`run` would continue from here."
    )


def _warn_about_keys(study: "StudyFile", keys: "Iterable[AccessKey]") -> None:
    """Warn if there is no usable key, for example on a second machine without a copy of the key file."""
    needed = {"central": "app", "local": "device"}[study.kind]
    if (study.kind == "central" or study.devices == "key") and not any(one.role == needed for one in keys):
        complain(
            f"There is no key with the role {needed} in `{study.keys_place}`, so no client can use `{study.name}`. "
            "Copy the file from the machine on which the study was begun, or make a key: `privrl serve key add`."
        )


@key.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Study files that share the key.")],
    role: Annotated[str, typer.Option("--role", help="app, device or operator.")],
    name: NameOption,
) -> None:
    """Make a key and print it. It cannot be shown again."""
    check_installed()
    from privrl.service.access import ROLES, KeyedStudy, KeyFile, add_key

    known = next((one for one in ROLES if one == role), None)
    if known is None:
        raise ValueError(f"`--role` is {role!r}. Give one of {', '.join(ROLES)}.")
    studies = [KeyedStudy.read(file) for file in files]
    for study in studies:
        if (known, study.kind) in (("app", "local"), ("device", "central")):
            other = {"local": "device", "central": "app"}[study.kind]
            raise ValueError(
                f"`{study.name}` is a {study.kind} study, whose keys have the role {other} or operator; got {known}."
            )
    say(add_key([KeyFile(study.keys_place) for study in studies], known, name))


@key.command(name="list")
def list_(file: StudyFileArgument) -> None:
    """Show the keys of a study."""
    check_installed()
    from privrl.service.access import KeyedStudy, KeyFile

    keys = KeyFile(KeyedStudy.read(file).keys_place).read().values()
    show_table("keys", ["name", "role", "added (UTC)"], [[one.name, one.role, one.added] for one in keys])


@key.command()
def revoke(file: StudyFileArgument, name: NameOption) -> None:
    """Revoke a key. A running service refuses it within a second."""
    check_installed()
    from privrl.service.access import KeyedStudy, KeyFile

    KeyFile(KeyedStudy.read(file).keys_place).revoke(name)
    say(f"The key {name!r} is revoked.")


def check_installed() -> None:
    """Check that the extra `serve` is installed."""
    for name in ("httptools", "msgspec", "prometheus_client", "starlette", "uvicorn"):
        if find_spec(name) is None:
            raise ImportError(
                f'`privrl serve` needs `{name}`, which is not installed. Install it: pip install "privrl[serve]".'
            )
