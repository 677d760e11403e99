"""A page on which a visitor swims a small river under local privacy, and sees what leaves the browser.

`privrl serve demo` serves it beside a study of its own. Page and study come from one machine here, which an app does
not do: it brings its own copy of the client, the hash of the study and the cap.
"""

from pathlib import Path

import msgspec
import numpy as np

from privrl.envs.base import Env
from privrl.envs.worlds_by_name import make
from privrl.service.local import LocalServed
from privrl.service.opening import begin
from privrl.service.study_file import StudyFile, read
from privrl.service.web import Call, Endpoint, HttpAnswer
from privrl.studies.local.document import identity_of

_STUDY = "demo"
_DECLARED = f"""\
kind = "local"
name = "{_STUDY}"
recipe = "ldp-ucbvi"
users = 10000
epsilon = 1.0
store = "demo.db"

[world]
env = "riverswim"
arguments = {{ states = 6, kind = "osband" }}
"""
_CAP = 2.0
_FILES = Path(__file__).parent / "client"
_KINDS = {".html": b"text/html; charset=utf-8", ".css": b"text/css", ".mjs": b"text/javascript"}
_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
        b"form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class DemoWorld(msgspec.Struct):
    """The river: `transition[s][a][s']`, `rewards[s][a]`, and where one starts."""

    transition: list[list[list[float]]]
    rewards: list[list[float]]
    initial: int


class DemoApp(msgspec.Struct):
    """What an app would be built with: where the study is, its hash, the cap on epsilon; and the river to swim in."""

    study: str
    hash: str
    cap: float
    world: DemoWorld


def begin_demo(folder: Path) -> StudyFile:
    """The study of the page, begun in a folder."""
    path = folder / "demo.toml"
    path.write_text(_DECLARED)
    file = read(path)
    begin(file)
    return file


def demo_endpoints(file: StudyFile) -> tuple[Endpoint, ...]:
    """The page's addresses, for the study of `begin_demo`."""
    world = _world(file)

    async def app(call: Call) -> HttpAnswer:
        served = call.studies.named(_STUDY)
        assert isinstance(served, LocalServed)
        return HttpAnswer.of(DemoApp(f"/v1/studies/{_STUDY}", identity_of(served.document).hex(), _CAP, world))

    return (
        _file("", "demo.html"),
        _file("demo.css", "demo.css"),
        _file("demo.mjs", "demo.mjs"),
        _file("privrl-client.mjs", "privrl-client.mjs"),
        Endpoint("demo-app", "GET", "/demo/app.json", app, "What an app would be built with.", gives=(DemoApp,)),
    )


def _file(path: str, name: str) -> Endpoint:
    found = _FILES / name
    content = HttpAnswer(200, found.read_bytes(), _KINDS[found.suffix], _HEADERS)

    async def answer(call: Call) -> HttpAnswer:
        del call
        return content

    return Endpoint(f"demo-{found.suffix[1:]}", "GET", f"/demo/{path}", answer, f"`{name}` of the page.")


def _world(file: StudyFile) -> DemoWorld:
    declared = file.world
    assert declared.env is not None
    env = make(declared.env, seed=declared.seed, **declared.arguments)
    assert isinstance(env, Env)
    transition, rewards = np.asarray(env.mdp.transition), np.asarray(env.mdp.reward)
    return DemoWorld(transition[0].tolist(), rewards[0].tolist(), int(np.argmax(np.asarray(env.mdp.initial))))
