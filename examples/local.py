"""Local: no trusted server. Devices send one small noisy message each, over HTTP, and a server learns from them.

Run it with `python examples/local.py`. It starts one server process, which keeps its sums on disk, and two client
processes that stand for many devices, each with its own small file. They use this machine's loopback only; a real study
needs TLS and a check of who takes part.
"""

import multiprocessing
import os
import tempfile
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

import equinox as eqx
import jax

import privrl
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies.local.wire import SignedTicket, plan_from_bytes

TOY = bool(os.environ.get("PRIVRL_TOY"))
PEOPLE = 24 if TOY else 1_000
PROCESSES = 2

# Public, and the same on both sides.
world = privrl.envs.RiverSwim(states=3)
learner = privrl.UCBVI(world.rewards, horizon=world.horizon)
privatizer = privrl.Local(epsilon=3.0)


def serve(folder: str, told: Connection) -> None:
    """The server: `GET /ticket` and `GET /plans/0`, `POST` a message. After a crash it continues."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 30  # a device that stops talking does not hold up the others

        def do_GET(self) -> None:
            number = self.path.removeprefix("/plans/")
            try:
                self.answer(200, server.plan(int(number)) if number.isdigit() else server.ticket().to_bytes())
            except privrl.MessageError as error:
                self.answer(404, str(error).encode())

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            if not 0 < size <= server.message_bytes:
                self.answer(413, b"no message of this study")
                return
            try:
                new = server.absorb(self.rfile.read(size))  # acknowledged once it is on disk
                self.answer(201 if new else 200, b"kept")  # sent again, it is already kept
            except privrl.MessageError as error:
                self.answer(400, str(error).encode())

        def answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Requests are not logged, because their metadata is sensitive."""

    # One thread: a store belongs to the thread that opened it.
    with ReleaseStore(Path(folder) / "study.db") as store, HTTPServer(("127.0.0.1", 0), Handler) as http:
        server = privrl.Server(learner, privatizer, num_users=PEOPLE, store=store)
        told.send(http.server_port)
        while server.num_reports < PEOPLE:
            http.handle_request()
        result = server.result()
        told.send((float(world.value(result.policy)), server.message_bytes, str(result.certificate)))


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as reply:
        return reply.read()


def take_part(folder: str, port: int, first: int, last: int) -> None:
    """Some devices, one after the other. Each acts on the plan it was shown; its trajectory stays on the device."""
    address = f"http://127.0.0.1:{port}"
    act = eqx.filter_jit(world.rollout)
    for person in range(first, last):
        ticket = SignedTicket.from_bytes(get(f"{address}/ticket"))
        plan = plan_from_bytes(get(f"{address}/plans/{ticket.plan}"), ticket, learner, privatizer)
        trajectory = act(plan.policy, jax.random.key(person))
        # No key: the device's own operating system draws the noise. The device stores the report before sending it.
        # After a crash, or if no answer came, it sends the same bytes again.
        client = privrl.Client(learner, privatizer, store=Path(folder) / f"device-{person}.db", cap=3.0)
        message = client.report(trajectory, privrl.Broadcast(ticket, plan))
        urllib.request.urlopen(address, data=message.to_bytes(), timeout=60).close()


def main() -> None:
    started = time.perf_counter()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = spawn.Pipe()
        server = spawn.Process(target=serve, args=(folder, theirs))
        server.start()
        port = ours.recv()
        share = PEOPLE // PROCESSES
        parts = [(folder, port, i * share, (i + 1) * share) for i in range(PROCESSES)]
        clients = [spawn.Process(target=take_part, args=part) for part in parts]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        if any(client.exitcode for client in clients):
            server.kill()
            raise SystemExit("A client failed; its error is above.")
        value, size, certificate = ours.recv()
        server.join()
    print(f"{PEOPLE} messages of {size} bytes from {PROCESSES} processes in {time.perf_counter() - started:.0f} s")
    print(f"value {value:.4f}  learned from them")
    print(f"value {float(world.value(world.uniform_policy())):.4f}  random actions")
    print(f"value {float(world.optimal_value):.4f}  best possible")
    print(certificate)


if __name__ == "__main__":
    main()
