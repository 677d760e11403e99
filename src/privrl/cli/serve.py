"""`privrl serve init`, `run`, `check`, `key` and `client`: live studies over HTTP."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privrl.cli.commands import App
from privrl.cli.compilation import keep_compiled_programs
from privrl.cli.options.budget_options import BudgetLogOption, BudgetOption, BudgetOptions
from privrl.cli.options.targets import OverwriteOption, check_folder
from privrl.cli.output import complain, say, show_table
from privrl.service.client_package import PACKAGE_FILES, read_package
from privrl.writing import whole_folder

if TYPE_CHECKING:  # an extra, which may not be installed
    from privrl.service.access import AccessKey
    from privrl.service.study_file import StudyFile

serve = App(name="serve", help="Serve live studies to apps and devices over HTTP.", no_args_is_help=True)
key = App(name="key", help="Keys of apps, devices and operators; kept as hashes.", no_args_is_help=True)
serve.add_typer(key)

StudyFileArgument = Annotated[Path, typer.Argument(help="A study file, in TOML.")]
NameOption = Annotated[str, typer.Option("--name", help="Name of the key; unique in its study.")]
_TLS = "Beyond this machine"
_LONG_PLAN = 0.25  # seconds
_AUTO = ("auto", "auto-online")


@serve.command()
def init(file: StudyFileArgument, budget: BudgetOption = None, budget_log: BudgetLogOption = None) -> None:
    """Declare a study for good, make its store and print its first keys. They cannot be shown again."""
    check_installed()
    from privrl.privacy.store.release_store import place_of
    from privrl.service.opening import begin_study, read_identity
    from privrl.service.study_file import read_study_file

    study = read_study_file(file)
    keep_compiled_programs()
    begin_study(study, BudgetOptions(budget, budget_log).shared)
    place = place_of(study.store)
    say(f"The study `{study.name}` is declared. Its store is `{place}`, and its audit log is `{study.log_place.name}`.")
    _say_size(study)
    if study.kind == "local":
        say(f"The SHA-256 of its document, for its apps: {read_identity(study)}")
    if study.keys.read():
        say("It keeps its keys; `privrl serve key add` makes more.")
        return
    local = "device" if study.devices == "key" else None
    first = local if study.kind == "local" else "app"
    say("Its first keys, which cannot be shown again:")
    for role in (first, "operator"):
        if role is not None:
            say(f"  {role:<9} {study.keys.add(role, f'first {role}')}")  # type: ignore[arg-type]


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
    from privrl.service.event_log import log_to_stderr
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
    log_to_stderr()
    serve_studies(studies, listeners, say)


@serve.command()
def check(file: StudyFileArgument) -> None:
    """Verify a study file and its store, and show what `run` would do. It changes nothing."""
    check_installed()
    from privrl.privacy.store.release_store import store_exists
    from privrl.service.access import read_keys
    from privrl.service.opening import check_same_study, declare_in_memory, open_store, read_identity
    from privrl.service.study_file import read_study_file
    from privrl.studies.results.arm_policies import read_arm_policies

    study = read_study_file(file)
    keep_compiled_programs()
    if not store_exists(study.place):
        declare_in_memory(study)
        _say_size(study)
        say(f"`{file}` is valid. The study was not begun yet: `privrl serve init {file}`.")
        return
    ends = study.ends()
    with open_store(study) as store:
        shown, keys = store.describe(), read_keys(store)
        full_blocks = sum(store.has_fact(f"sums of block {block}") for block in range(len(ends)))  # of a local study
    check_same_study(study, shown)
    if study.protocol is not None:
        read_arm_policies(study.protocol, file.parent)
    if study.kind == "local":
        say(f"The SHA-256 of its document, for its apps: {read_identity(study)}")
    tickets = sum(shown["queues"].values()) + sum(shown["ranges"].values())
    people = "any number of people" if study.users is None else f"{study.users:,} {study.counting}"
    what = f"pilot of {people}" if study.kind == "pilot" else f"{study.kind} study of {people} with `{study.recipe}`"
    say(f"`{study.name}` is a {what}; the store is intact.")
    places, local = int(ends[-1]), study.kind == "local"
    full = full_blocks == len(ends) if local else tickets >= places
    said = f" (full: {places:,} of {places:,})" if full else ""
    if local:
        say(f"Tickets reserved: {tickets:,}. Blocks of reports: {full_blocks:,} of {len(ends):,}{said}.")
    else:
        released = sum(row["status"] in ("released", "redrawn") for row in shown["releases"])
        say(f"Tickets issued: {tickets:,}{said}. Releases: {released:,}.")
    _warn_about_keys(study, keys.values())
    say(
        "It was purged: `run` would serve its certificate only."
        if shown["purged"]
        else "`run` would continue from here, and serve new people without a ticket."
        if full and study.kind != "pilot"
        else "`run` would continue from here."
    )


def _say_size(study: "StudyFile") -> None:
    """Print the sizes of a study and what a plan costs, before it is begun and when it is."""
    from privrl.service.opening import measure_plan

    if study.kind == "pilot":  # its protocol states the sizes, and a look plans nothing
        return
    problem, seconds = study.world.problem(), measure_plan(study)
    sizes = f"{problem.num_states} states, {problem.num_actions} actions, {problem.horizon} steps"
    chosen = f" `{study.recipe}` has chosen `{type(study.learner()).__name__}`." if study.recipe in _AUTO else ""
    cost = "" if seconds is None else f" A plan takes {max(seconds, 0.01):.2f} seconds on this machine."
    say(f"It has {sizes} and {len(study.ends()):,} blocks of {study.counting}.{chosen}{cost}")
    if seconds is not None and seconds > _LONG_PLAN and not study.plan_delay:
        complain(
            "People who arrive while a plan is computed wait for it. `plan_delay = 1` computes plans meanwhile, and "
            "they take effect one block later; it cannot be changed once the study is declared."
        )


def _warn_about_keys(study: "StudyFile", keys: "Iterable[AccessKey]") -> None:
    """Warn if there is no usable key."""
    needed = "device" if study.kind == "local" else "app"
    if (study.kind != "local" or study.devices == "key") and not any(one.role == needed for one in keys):
        complain(
            f"`{study.name}` has no key with the role {needed}, so no client can use it. Make one: `privrl serve key "
            f"add {study.path.name} --role {needed} --name NAME`."
        )


@serve.command()
def client(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")],
    overwrite: OverwriteOption = False,
) -> None:
    """Write the npm package of the clients in JavaScript, for pages and for node."""
    check_folder(context, out, PACKAGE_FILES, overwrite=overwrite)
    with whole_folder(out, PACKAGE_FILES, overwrite=overwrite) as scratch:
        for name, content in read_package().items():
            (scratch / name).write_bytes(content)
    say(f"Wrote the package `privrl-client` to `{out}`.")


@key.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Study files that share the key.")],
    role: Annotated[str, typer.Option("--role", help="app, device or operator.")],
    name: NameOption,
    days: Annotated[
        float | None, typer.Option("--days", help="Days until the key expires; without it, the key does not.", min=0)
    ] = None,
) -> None:
    """Make a key and print it. It cannot be shown again. All machines accept it within seconds."""
    check_installed()
    from privrl.service.access import ROLES, KeyedStudy, add_key

    known = next((one for one in ROLES if one == role), None)
    if known is None:
        raise ValueError(f"`--role` is {role!r}. Give one of {', '.join(ROLES)}.")
    studies = [KeyedStudy.read(file) for file in files]
    for study in studies:
        other = "device" if study.kind == "local" else "app"
        if known not in (other, "operator"):
            raise ValueError(
                f"`{study.name}` is a {study.kind} study, whose keys have the role {other} or operator; got {known}."
            )
    say(add_key([study.keys for study in studies], known, name, None if days is None else 86_400 * days))


@key.command(name="list")
def list_(file: StudyFileArgument) -> None:
    """Show the keys of a study, revoked ones included."""
    check_installed()
    from privrl.service.access import KeyedStudy
    from privrl.service.bodies import write_time

    with KeyedStudy.read(file).keys.open() as store:
        rows = [
            [one.name, one.role, one.added, write_time(one.expires) or "-", one.revoked or "-"]
            for one in store.access_keys()
        ]
    show_table("keys", ["name", "role", "added (UTC)", "expires", "revoked"], rows)


@key.command()
def revoke(file: StudyFileArgument, name: NameOption) -> None:
    """Revoke a key. All machines refuse it within seconds."""
    check_installed()
    from privrl.service.access import KeyedStudy

    KeyedStudy.read(file).keys.revoke(name)
    say(f"The key {name!r} is revoked.")


def check_installed() -> None:
    """Check that the extra `serve` is installed."""
    for name in ("httptools", "msgspec", "prometheus_client", "starlette", "uvicorn"):
        if find_spec(name) is None:
            raise ImportError(
                f'`privrl serve` needs `{name}`, which is not installed. Install it: pip install "privrl[serve]".'
            )
