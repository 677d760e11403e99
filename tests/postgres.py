"""A PostgreSQL server in a temporary folder, from the system's package, that tests may kill and start again.

It listens on a socket in that folder alone. PostgreSQL refuses to run as root, so there it is another user's.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

MISSING = (
    "PostgreSQL is not installed here (Debian: apt-get install postgresql), or psycopg is not; its tests are skipped"
)
_USERS = ("postgres", "nobody")
# Tests kill processes, never the power: what the operating system has been given is kept.
_SETTINGS = {"listen_addresses": "", "fsync": "off", "max_connections": 40, "shared_buffers": "16MB"}


def programs() -> Path | None:
    """The folder of the newest server programs that are installed."""
    with contextlib.suppress(ImportError):
        import psycopg  # noqa: F401

        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        on_path = shutil.which("initdb")
        return found[-1].parent if found else Path(on_path).parent if on_path else None
    return None


class Running:
    """A server that runs, by the folder of its socket; each store gets a schema of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()

    def address(self, schema: str, user: str = "owner") -> str:
        return f"postgresql:///postgres?host={self.folder}&user={user}&options=-csearch_path%3D{schema}"

    def new(self) -> str:
        """The address of an empty schema."""
        import psycopg

        schema = f"store_{os.getpid()}_{next(self._numbers)}"
        with psycopg.connect(self.address("public"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return self.address(schema)


class Cluster(Running):
    """A server of this process."""

    def __init__(self) -> None:
        folder = programs()
        assert folder is not None
        self._programs = folder
        super().__init__(Path(tempfile.mkdtemp(prefix="pg")))  # a short name: those of sockets are limited
        self._user = None
        if os.geteuid() == 0:
            import pwd

            known = {entry.pw_name for entry in pwd.getpwall()}
            self._user = next(user for user in _USERS if user in known)
            shutil.chown(self.folder, self._user)
        initdb = [
            folder / "initdb",
            "-D",
            self.folder / "data",
            "-U",
            "owner",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        subprocess.run([*initdb, "--locale=C"], user=self._user, cwd="/", check=True, stdout=subprocess.DEVNULL)
        self.start()

    def start(self) -> None:
        """Starts the server, and waits until it answers."""
        import psycopg

        options = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        with open(self.folder / "log", "ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *options],
                user=self._user,
                cwd="/",
                stdout=log,
                stderr=log,
            )
        for _ in range(600):
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.address("public")).close()
                return
            assert self._server.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)
        raise TimeoutError("PostgreSQL did not start")

    def kill(self) -> None:
        """Kills the server and all its processes, as a power cut would."""
        self._server.send_signal(signal.SIGQUIT)  # its processes end at once, without any tidying
        self._server.wait()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)
