"""`privrl serve demo`: a page that shows what leaves a browser under local privacy."""

import socket
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.compilation import keep_compiled_programs
from privrl.cli.output import say
from privrl.cli.serve import check_installed, serve


@serve.command("demo")
def serve_demo(
    port: Annotated[int, typer.Option("--port", help="Port of the page on this machine; 0 takes a free one.")] = 8080,
) -> None:
    """Serve a small river to swim in under local privacy, from a temporary folder, on this machine only."""
    check_installed()
    from privrl.service.demo_endpoints import begin_demo, demo_endpoints
    from privrl.service.listening import Address, Listeners
    from privrl.service.listening import serve as serve_studies

    keep_compiled_programs()
    port = port or _find_port()
    with tempfile.TemporaryDirectory(prefix="privrl-demo-") as folder:
        study = begin_demo(Path(folder))
        listeners = Listeners(Address("127.0.0.1", port), Address("127.0.0.1", 0))

        def say_and_invite(line: str) -> None:
            say(line)
            if line == "Ready.":
                say(f"Open http://127.0.0.1:{port}/demo/ in a browser. Ctrl-C ends the service and removes its files.")

        serve_studies([study], listeners, say_and_invite, demo_endpoints(study))


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]
