"""The container file, built and run as the compose file runs it: its size, the begin of a study, its health check.

No image is downloaded: the base is made of the packages of this Debian machine, and the packages of
`requirements-serve.txt` come from where pip finds them.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import Cluster
from service.answers import over_http
from service.test_examples_serve import COMPOSE, CONTAINER, FOLDER
from service.test_guide import free_ports

ROOT = FOLDER.parents[1]
BUILDAH, PYTHON = shutil.which("buildah"), "/usr/bin/python3"
MOST_BYTES = 850e6
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BUILDAH is None or shutil.which("dpkg") is None or os.geteuid() != 0,
        reason="Building the image needs buildah on Debian, and root.",
    ),
]
PACKAGES = (
    "python3-venv",
    "passwd",
    "coreutils",
    "dash",
    "base-files",
    "base-passwd",
    "findutils",
    "sed",
    "libstdc++6",
)


def run(*command: str | Path, **options: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout.strip()


def debian(folder: Path) -> None:
    """Copies the files of a small Debian with Python from this machine."""
    todo, packages = list(PACKAGES), set()
    while todo:
        name = todo.pop()
        if name not in packages:
            packages.add(name)
            found = subprocess.run(
                ["dpkg-query", "-W", "-f=${Pre-Depends},${Depends}", name], capture_output=True, text=True, check=False
            ).stdout  # nothing for a package that only others provide
            todo += [one.split("|")[0].split("(")[0].split(":")[0].strip() for one in found.split(",") if one.strip()]
    for link in ("bin", "sbin", "lib", "lib64"):
        (folder / link).symlink_to(f"usr/{link}")
    for name in sorted(packages):
        listed = subprocess.run(["dpkg", "-L", name], capture_output=True, text=True, check=False).stdout
        for path in map(Path, listed.splitlines()):
            real = Path(os.path.realpath(path.parent)) / path.name
            documentation = re.match(r"/usr/share/(doc|man|locale|info|lintian|bug)/", str(real))
            if not documentation and (real.is_symlink() or real.is_file()) and not (folder / f".{real}").is_symlink():
                (folder / f".{real}").parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(real, folder / f".{real}", follow_symlinks=False)
    for name in ("tmp", "home", "root", "etc", "proc", "sys", "dev", "var/tmp", "wheels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "tmp").chmod(0o1777)
    for name in ("passwd", "group"):
        shutil.copy(f"/usr/share/base-passwd/{name}.master", folder / "etc" / name)
    (folder / "etc" / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")


class Image:
    """The image and the programs that build and run it, with storage of its own."""

    def __init__(self, folder: Path) -> None:
        self._command = [BUILDAH, "--storage-driver=vfs", f"--root={folder}/images", f"--runroot={folder}/run"]

    def __call__(self, *arguments: str | Path) -> str:
        return run(*self._command, *arguments)

    def command(self, container: str, options: list[str], inside: list[str]) -> list[str]:
        return [*self._command, "run", "--isolation=chroot", *options, container, "--", *inside]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("image")
    wheels = folder / "wheels"
    pins = ["--require-hashes", "-r", ROOT / "requirements-serve.txt"]
    version = run(PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    try:
        run(
            sys.executable,
            "-m",
            "pip",
            "download",
            f"--python-version={version}",
            "--only-binary=:all:",
            "-d",
            wheels,
            *pins,
        )
    except AssertionError as error:
        pytest.skip(f"pip cannot download the packages: {str(error)[-300:]}")
    base = folder / "base"
    base.mkdir()
    debian(base)
    made = Image(folder)
    try:
        container = made("from", "scratch")
        made("copy", container, base, "/")
        made("commit", "--rm", container, "base")
        shutil.rmtree(base)
        build = (
            "build",
            "--isolation=chroot",
            "--format=oci",
            "--build-arg=BASE=localhost/base",
            f"--volume={wheels}:/wheels:ro",
        )
        made(*build, "-t", "privrl", "-f", CONTAINER, ROOT)
        made("rmi", "--force", "base")
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_the_image_is_small_and_runs_as_the_compose_file_says(image: Image, postgres: Cluster, tmp_path: Path) -> None:
    yaml, psycopg = pytest.importorskip("yaml"), pytest.importorskip("psycopg")
    (about,) = json.loads(f"[{image('inspect', '--type=image', 'privrl')}]")
    assert about["OCIv1"]["config"]["User"] == "privrl"
    container = image("from", "privrl")
    inside = Path(image("mount", container))
    size = sum(path.lstat().st_size for path in inside.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"The image has {size / 1e6:.0f} MB.")  # noqa: T201
    assert size <= MOST_BYTES
    packages = {path.name for path in next((inside / "opt/privrl/lib").iterdir()).joinpath("site-packages").iterdir()}
    assert "privrl" in packages and not packages & {"matplotlib", "pyarrow", "pip", "setuptools", "pandas"}

    services = yaml.safe_load(COMPOSE.read_text())["services"]
    with psycopg.connect(postgres.address("public"), autocommit=True) as database:
        database.execute("CREATE DATABASE lake")
    volumes = {name: tmp_path / name for name in ("logs-one", "logs-two")}
    for path in volumes.values():
        path.mkdir()

    def started(name: str, port: str = "") -> list[str]:
        """The command of a service, with its volumes and the port replaced."""
        command = services[name]["command"]
        given = [volume.split(":") for volume in services[name]["volumes"]]
        options = [f"--volume={(FOLDER / one if one.startswith('.') else volumes[one])}:{at}" for one, at, *_ in given]
        options += [f"--volume={postgres.folder}:{postgres.folder}", f"--env=PGHOST={postgres.folder}"]
        options += [
            "--env=PGUSER=owner",
            "--user=root",
        ]  # the only one who may enter the folder of this server's socket
        parts = command if isinstance(command, list) else command.split()
        return image.command(container, options, [part.replace("0.0.0.0:8080", port) for part in parts])

    for _ in range(2):  # beginning again changes nothing
        assert "the store is intact" in run(*started("init"))
    assert re.findall(r"^ +(app|operator) +prk_", (volumes["logs-one"] / "keys.txt").read_text(), re.MULTILINE)
    ports = [free_ports() for _ in range(2)]
    with contextlib.ExitStack() as stack:
        for name, (port, operator) in zip(("one", "two"), ports, strict=True):
            command = [
                part.replace("127.0.0.1:8081", f"127.0.0.1:{operator}") for part in started(name, f"127.0.0.1:{port}")
            ]
            process = stack.enter_context(subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL))
            stack.callback(process.terminate)
        for (port, _), name in zip(ports, ("one", "two"), strict=True):
            check = [part.replace(":8080", f":{port}") for part in services[name]["healthcheck"]["test"][1:]]
            health = [str(part) for part in image.command(container, [], check)]
            end = time.monotonic() + 120.0
            while subprocess.run(health, capture_output=True, timeout=60, check=False).returncode:
                assert time.monotonic() < end, "the machine did not become ready"
                time.sleep(1.0)
            with over_http(f"http://127.0.0.1:{port}") as ask:
                assert ask("GET", "/v1/studies/lake", {}, b"").status == 200
