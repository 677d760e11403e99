"""A page on which a visitor swims a small river under local privacy, and sees what leaves the browser.

`privrl serve demo` serves it together with a study of its own. Here page and study come from one machine. A real app
does not do that: it ships its own copy of the client, the hash of the study and the cap on epsilon.
"""

from pathlib import Path

import msgspec
import numpy as np
from starlette.responses import Response

from privrl.envs.base import Env
from privrl.envs.worlds_by_name import make
from privrl.service.application import Call, Endpoint, endpoint
from privrl.service.client_package import CLIENT_FOLDER, MEDIA_TYPES
from privrl.service.local import LocalStudy
from privrl.service.opening import begin_study
from privrl.service.study_file import StudyFile, read_study_file
from privrl.studies.local.document import identity_of

_STUDY = "demo"
_DECLARATION = f"""\
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
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class DemoWorld(msgspec.Struct):
    """The river: `transition[s][a][s']`, `rewards[s][a]`, and the initial state."""

    transition: list[list[list[float]]]
    rewards: list[list[float]]
    initial: int


class DemoApp(msgspec.Struct):
    """What an app ships: the address of the study, its hash and the cap on epsilon; and the river to swim in."""

    study: str
    hash: str
    cap: float
    world: DemoWorld


def begin_demo(folder: Path) -> StudyFile:
    """Begin the study of the page in a folder."""
    path = folder / "demo.toml"
    path.write_text(_DECLARATION)
    file = read_study_file(path)
    begin_study(file)
    return file


def demo_endpoints(file: StudyFile) -> tuple[Endpoint, ...]:
    """Make the endpoints of the page, for the study of `begin_demo`."""
    world = _make_world(file)

    @endpoint("demo-app", "GET", "/demo/app.json", gives=(DemoApp,))
    async def show_app(call: Call) -> DemoApp:
        """Return what an app ships."""
        study = call.studies.find(_STUDY)
        assert isinstance(study, LocalStudy)
        return DemoApp(f"/v1/studies/{_STUDY}", identity_of(study.document).hex(), _CAP, world)

    files = {"": "demo.html", "demo.css": "demo.css", "demo.mjs": "demo.mjs", "privrl-client.mjs": "privrl-client.mjs"}
    return (*(_file_endpoint(path, name) for path, name in files.items()), show_app)


def _file_endpoint(path: str, name: str) -> Endpoint:
    file = CLIENT_FOLDER / name
    content = file.read_bytes()

    @endpoint(f"demo-{file.suffix[1:]}", "GET", f"/demo/{path}")
    async def show(call: Call) -> Response:
        """Return a file of the page."""
        return Response(content, headers=_HEADERS, media_type=MEDIA_TYPES[file.suffix])

    return show


def _make_world(file: StudyFile) -> DemoWorld:
    declared = file.world
    assert declared.env is not None
    env = make(declared.env, seed=declared.seed, **declared.arguments)
    assert isinstance(env, Env)
    transition, rewards = np.asarray(env.mdp.transition), np.asarray(env.mdp.reward)
    return DemoWorld(transition[0].tolist(), rewards[0].tolist(), int(np.argmax(np.asarray(env.mdp.initial))))
