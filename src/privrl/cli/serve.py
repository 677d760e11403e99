"""`privrl serve init`, `run`, `check` and `key`: live studies over HTTP."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privrl.cli.compilation import keep_compiled_programs
from privrl.cli.output import complain, say, show_table
from privrl.privacy.store.release_store import is_there, place_of

if TYPE_CHECKING:  # an extra, which most people do not have
    from privrl.service.access import AccessKey
    from privrl.service.study_file import StudyFile

serve = typer.Typer(name="serve", help="Serve live studies to apps and devices over HTTP.", no_args_is_help=True)
key = typer.Typer(name="key", help="Keys of apps, devices and operators; kept as hashes.", no_args_is_help=True)
serve.add_typer(key)

StudyFileArgument = Annotated[Path, typer.Argument(help="A study file, in TOML.")]
NameOption = Annotated[str, typer.Option("--name", help="What the key is called; each has its own.")]
_TLS = "Beyond this machine"


@serve.command()
def init(file: StudyFileArgument) -> None:
    """Declare a study for good, make its store and print its first keys, once."""
    check_installed()
    from privrl.service.access import KeyFile
    from privrl.service.opening import begin, identity_in
    from privrl.service.study_file import read

    study = read(file)
    keep_compiled_programs()
    begin(study)
    place = place_of(study.store)
    say(f"The study `{study.name}` is declared; its store is `{place}`, its audit log `{study.log_place.name}`.")
    if study.kind == "local":
        say(f"The SHA-256 of its document, for its apps: {identity_in(study)}")
    keys = KeyFile(study.keys_place)
    if keys.read():
        say(f"Its keys are those in `{keys.path.name}`; `privrl serve key add` makes further ones.")
        return
    first = {"central": "app", "local": "device" if study.devices == "key" else None}[study.kind]
    say("Its first keys, which are not shown again:")
    for role in (first, "operator"):
        if role is not None:
            say(f"  {role:<9} {keys.add(role, f'first {role}')}")  # type: ignore[arg-type]


@serve.command()
def run(
    files: Annotated[list[Path], typer.Argument(help="Study files; each study was begun with `init`.")],
    listen: Annotated[str, typer.Option("--listen", help="HOST:PORT for apps and devices.")] = "127.0.0.1:8080",
    operator: Annotated[str, typer.Option("--operator", help="HOST:PORT for the operator.")] = "127.0.0.1:8081",
    operator_host: Annotated[
        list[str] | None, typer.Option("--operator-host", help="A further name of the operator's address.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", help="Certificate chain, in PEM.", rich_help_panel=_TLS)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="Its private key, in PEM.", rich_help_panel=_TLS)
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy in front does TLS.", rich_help_panel=_TLS)
    ] = False,
    connections: Annotated[int, typer.Option("--connections", help="The most connections at once.")] = 1_024,
) -> None:
    """Serve studies until the process is told to end."""
    check_installed()
    from privrl.service.access import KeyFile
    from privrl.service.addresses import Address, Listeners
    from privrl.service.listening import serve as listen_until_told
    from privrl.service.study_file import read

    addresses = Address.of(listen), Address.of(operator)
    how = Listeners(*addresses, tuple(operator_host or ()), tls_cert, tls_key, behind_proxy, connections)
    how.check()
    keep_compiled_programs()
    studies = [read(file) for file in files]
    for study in studies:
        _warn_of_keys(study, KeyFile(study.keys_place).read().values())
    listen_until_told(studies, how, say)


@serve.command()
def check(file: StudyFileArgument) -> None:
    """Verify a study file and its store, and say what `run` would do; nothing is changed."""
    check_installed()
    from privrl.service.access import KeyFile
    from privrl.service.opening import check_same, declared, identity_in, open_store
    from privrl.service.study_file import read

    study = read(file)
    keys = KeyFile(study.keys_place).read()
    keep_compiled_programs()
    if not is_there(study.place):
        declared(study)
        say(f"`{file}` is in order, and its study was not begun: `privrl serve init {file}`.")
        return
    with open_store(study) as store:
        shown = store.shown()
    check_same(study, shown)
    if study.kind == "local":
        say(f"The SHA-256 of its document, for its apps: {identity_in(study)}")
    tickets = sum(shown["queues"].values()) + sum(shown["ranges"].values())
    released = sum(row["status"] in ("released", "redrawn") for row in shown["releases"])
    people = "as many people as come" if study.users is None else f"{study.users:,} {study.counting}"
    say(f"`{study.name}` is a {study.kind} study of {people} with `{study.recipe}`; the store is intact.")
    say(f"Tickets handed out: {tickets:,}. Releases: {released:,}.")
    _warn_of_keys(study, keys.values())
    say(
        "It was purged: `run` would serve its certificate alone." if shown["purged"] else "`run` would go on from here."
    )


def _warn_of_keys(study: "StudyFile", keys: "Iterable[AccessKey]") -> None:
    """Says what nobody can do: a second machine without its copy of the keys refuses everybody."""
    needed = {"central": "app", "local": "device"}[study.kind]
    if (study.kind == "central" or study.devices == "key") and not any(one.role == needed for one in keys):
        complain(
            f"There is no key with the role {needed} in `{study.keys_place}`, so nobody can use `{study.name}`. Copy "
            "that file from where the study was begun, or make a key: `privrl serve key add`."
        )


@key.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Study files; one key for all of them.")],
    role: Annotated[str, typer.Option("--role", help="app, device or operator.")],
    name: NameOption,
) -> None:
    """Make a key and print it, once."""
    check_installed()
    from privrl.service.access import ROLES, KeyFile, add_key
    from privrl.service.study_file import read

    known = next((one for one in ROLES if one == role), None)
    if known is None:
        raise ValueError(f"`--role` is {role!r}; it must be one of {', '.join(ROLES)}.")
    studies = [read(file) for file in files]
    for study in studies:
        if (known, study.kind) in (("app", "local"), ("device", "central")):
            other = {"local": 'device (or none, where `devices` is "open")', "central": "app"}[study.kind]
            raise ValueError(f"`{study.name}` is a {study.kind} study, where keys have the role {other} or operator.")
    say(add_key([KeyFile(study.keys_place) for study in studies], known, name))


@key.command(name="list")
def list_(file: StudyFileArgument) -> None:
    """Show what keys there are."""
    check_installed()
    from privrl.service.access import KeyFile
    from privrl.service.study_file import read

    keys = KeyFile(read(file).keys_place).read().values()
    show_table("keys", ["name", "role", "added (UTC)"], [[one.name, one.role, one.added] for one in keys])


@key.command()
def revoke(file: StudyFileArgument, name: NameOption) -> None:
    """End a key; a running service knows within seconds."""
    check_installed()
    from privrl.service.access import KeyFile
    from privrl.service.study_file import read

    KeyFile(read(file).keys_place).revoke(name)
    say(f"The key {name!r} is revoked.")


def check_installed() -> None:
    """Refuses where the extra is missing."""
    try:
        import httptools  # noqa: F401
        import msgspec  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'`privrl serve` needs `{error.name}`, which is not installed: pip install "privrl[serve]".'
        ) from error
