"""The npm package as `privrl serve client` writes it, in node: whole visits at a running service, and offline."""

import contextlib
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_cli import call

from privrl.service.client_package import CLIENT_FOLDER, PACKAGE_FILES
from privrl.studies.local.document import identity_of

from .door import BUSY, FULL, Door
from .serving import CENTRAL, LOCAL, Reply, Service, serving, study_file

MODULES = {"index": "privrl-client", "node": "privrl-client/node", "privrl-policy": "privrl-client/policy"}
CAUGHT = "({ name, status, reason, retryAfter, message }) => ({ name, status, reason, retryAfter, message })"
STEPS = "const steps = [0, 1, 2, 1].map((state) => ({ state, action: 1, reward: 0, next_state: undefined }));"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an app in which nothing but the package is installed."""
    folder = tmp_path_factory.mktemp("app")
    called = call("serve", "client", str(folder / "node_modules" / "privrl-client"))
    assert called.code == 0 and "privrl-client" in called.out
    return folder


@pytest.fixture(scope="module")
def node(app: Path) -> Any:
    """What a script of the app returns, as JSON."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed, so the package is not run in it.")

    def run(body: str, **given: Any) -> Any:
        constants = "".join(f"const {name} = {json.dumps(value)};" for name, value in given.items())
        start = """
            import { Refused, ServiceError, Study, deviceStorage, memoryStorage } from "privrl-client";
            import { AppClient, fileStorage } from "privrl-client/node";
        """
        script = (
            f"{start}{constants}const found = await (async () => {{ {body} }})();console.log(JSON.stringify(found));"
        )
        (app / "app.mjs").write_text(script)
        done = subprocess.run([program, "app.mjs"], cwd=app, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(study_file(tmp_path_factory.mktemp("phone"), LOCAL)) as made:
        yield made


@pytest.fixture
def door(phone: Service) -> Iterator[Door]:
    with contextlib.closing(Door(phone)) as made:
        yield made


@pytest.fixture
def device(phone: Service, door: Door, tmp_path: Path) -> dict[str, Any]:
    """What an app ships, and a device that has not reported yet."""
    return {
        "url": door.url,
        "shipped": {"hash": identity_of(phone.served.document).hex(), "cap": 1},
        "file": str(tmp_path / "device.json"),
    }


VISIT = STEPS + "const study = await Study.open(url, { ...shipped, storage: fileStorage(file) }); await study.begin();"


def test_a_package_is_a_folder_of_known_files_and_names_no_host(app: Path) -> None:
    folder = app / "node_modules" / "privrl-client"
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(written) == set(PACKAGE_FILES)
    described = json.loads(written["package.json"])
    assert described["name"] == "privrl-client" and re.fullmatch(r"\d+\.\d+\.\d+", described["version"])
    assert {"type", "exports", "engines", "license"} < described.keys() and "dependencies" not in described
    targets = [
        path for one in described["exports"].values() for path in ([one] if isinstance(one, str) else one.values())
    ]
    assert {path.removeprefix("./") for path in targets} <= set(written)
    for name, text in written.items():
        assert set(re.findall(r"\w+://[\w.]+", text)) <= {"https://service.example"}, name
        assert all(f"./{file}" in text for file in re.findall(r'from "\./([^"]+)"', text))
    imported = {
        file for name in written if name.endswith(".mjs") for file in re.findall(r'from "\./([^"]+)"', written[name])
    }
    assert imported <= set(written)


@pytest.mark.parametrize("module", MODULES)
def test_types_declare_what_modules_export(module: str, node: Any) -> None:
    text = (CLIENT_FOLDER / f"{module}.d.ts").read_text()
    again = [
        name.strip() for names in re.findall(r"^export \{(.+)\} from", text, re.MULTILINE) for name in names.split(",")
    ]
    declared = sorted(again + re.findall(r"^export (?:class|function|const) (\w+)", text, re.MULTILINE))
    found = node("return Object.keys(await import(module)).sort();", module=MODULES[module])
    assert found == declared
    for name, body in re.findall(r"^export class (\w+)(?: extends \w+)? \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        methods = sorted(set(re.findall(r"^  (?:static )?(\w+)\(", body, re.MULTILINE)) - {"constructor"})
        missing = node(
            "const kind = (await import(module))[name], has = (one) => one in kind || one in kind.prototype;"
            "return methods.filter((one) => !has(one));",
            module=MODULES[module],
            name=name,
            methods=methods,
        )
        assert missing == []


def test_a_device_takes_part_and_sends_one_report(device: dict[str, Any], door: Door, node: Any) -> None:
    visit = VISIT + "return [study.act(0, 0), await study.report(steps), await study.send(), study.ticket.number];"
    action, reported, again, number = node(visit, **device)
    assert action in (0, 1) and reported is again is True
    assert node(visit, **device) == [action, True, True, number]  # another process, the same ticket
    reports = [body for what, body in door.seen if what == "reports"]
    assert len(reports) == 4 and len(set(reports)) == 1
    assert Path(device["file"]).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in Path(device["file"]).parent.iterdir() if "device" in path.name) == [
        "device.json"
    ]


def test_a_device_with_a_ticket_works_offline(device: dict[str, Any], door: Door, node: Any) -> None:
    begun = node(VISIT + "return study.actions;", **device)
    door.fault = lambda number, reply: None
    door.seen.clear()
    offline = VISIT.replace("...shipped", "...shipped, retrySeconds: 0")
    played, failed = node(offline + f"return [study.actions, await study.report(steps).catch({CAUGHT})];", **device)
    assert played == begun
    assert (failed["name"], failed["status"], failed["reason"], failed["retryAfter"]) == ("ServiceError", 0, "", None)
    assert {what for what, _ in door.seen} == {"reports"}
    door.fault = lambda number, reply: reply
    assert node(VISIT + "return study.send();", **device) is True
    assert len({body for what, body in door.seen if what == "reports"}) == 1


def test_a_report_that_comes_too_late_does_not_throw(device: dict[str, Any], door: Door, node: Any) -> None:
    """The study became full, or the ticket expired, while the visit went on."""
    door.fault = lambda number, reply: FULL if door.seen[-1][0] == "reports" else reply
    late = VISIT + "return [await study.report(steps), await study.send(), study.act(0, 0)];"
    reported, sent, action = node(late, **device)
    assert reported is sent is False and action in (0, 1)


def replaced(door: Door, address: str, number: int, reply: Reply) -> Reply:
    """Another text for one address."""
    return reply._replace(body=b'{"actions": []}') if door.seen[-1][0] == address else reply


def test_what_a_server_publishes_wrongly_is_not_kept(device: dict[str, Any], door: Door, node: Any) -> None:
    """A document or a plan that was refused is fetched again."""
    refused = "return (async () => {" + VISIT + "return 'taken'; })().catch(({ name, message }) => message);"
    for wrong, words in (("phone", "not the one this app was built for"), ("0", "not a plan")):
        door.fault = functools.partial(replaced, door, wrong)
        assert words in node(refused, **device)
    door.fault = lambda number, reply: reply
    assert node(VISIT + "return study.report(steps);", **device) is True


def test_retry_after_is_respected_and_errors_say_why(device: dict[str, Any], door: Door, node: Any) -> None:
    """The clock of node is replaced: no test waits seven seconds."""
    waits = """
        const waits = [], later = setTimeout;
        globalThis.setTimeout = (work, time, ...rest) => later(work, time === 7000 ? waits.push(time) : time, ...rest);
    """
    door.fault = lambda number, reply: BUSY if number in (1, 2, 4) else reply
    assert node(waits + VISIT + "return waits;", **device) == [7000, 7000, 7000]
    door.fault = lambda number, reply: BUSY
    impatient = f"return Study.open(url, {{ ...shipped, storage: memoryStorage(), retrySeconds: 5 }}).catch({CAUGHT});"
    failed = node(waits + impatient, **device)
    assert failed == {
        "name": "ServiceError", "status": 503, "reason": "busy", "retryAfter": 7, "message": "Too many."
    }  # fmt: skip
    door.fault = lambda number, reply: reply
    lost = {**device, "url": device["url"] + "-lost"}
    failed = node(impatient, **lost)
    assert (failed["status"], failed["reason"], failed["retryAfter"]) == (404, "unknown-study", None)
    assert "IndexedDB" in node("return deviceStorage().catch(({ message }) => message);")


def test_a_process_that_has_lost_its_lock_changes_nothing(tmp_path: Path, node: Any) -> None:
    """A process in another container, which cannot see this one, takes the lock over."""
    file = tmp_path / "device.json"
    taken = """
        const { readFileSync, writeFileSync } = await import("node:fs"), mine = fileStorage(file);
        await mine.update("h", () => ({ hash: "h", n: 1 }));
        const before = readFileSync(file, "utf8"), lock = JSON.parse(readFileSync(`${file}.lock`, "utf8"));
        writeFileSync(`${file}.lock`, JSON.stringify([lock[0], 1, "another"]));
        const words = await mine.update("h", () => ({ hash: "h", n: 2 })).catch(({ message }) => message);
        return [words, readFileSync(file, "utf8") === before];
    """
    assert node(taken, file=str(file)) == ["another process has taken over this storage", True]
    assert json.loads(Path(f"{file}.lock").read_text())[1:] == [1, "another"]  # still that of the other process


def test_a_file_is_for_one_process_and_a_killed_one_leaves_it(device: dict[str, Any], node: Any) -> None:
    second = """
        const { spawnSync } = await import("node:child_process");
        const program = `
          import { fileStorage } from "privrl-client/node";
          try { fileStorage(${JSON.stringify(file)}); console.log("opened"); process.kill(process.pid, "SIGKILL"); }
          catch ({ message }) { console.log(message); }`;
        const other = () => spawnSync("node", ["--input-type=module", "-e", program]).stdout.toString().trim();
    """
    mine = "const first = fileStorage(file); return [first === fileStorage(file), other()];"
    same, words = node(second + mine, **device)
    assert same and words.startswith("another process uses this storage.") and "device.json.lock" in words
    killed = """
        const found = other(), storage = fileStorage(file);
        await storage.update("a", () => ({ hash: "a", bytes: new Uint8Array([1, 255]) }));
        const { bytes } = await storage.update("a", (kept) => kept);
        return [found, bytes instanceof Uint8Array, ...bytes];
    """
    assert node(second + killed, **device) == ["opened", True, 1, 255]
    Path(device["file"]).write_text("[{")
    damaged = "return fileStorage(file).update('a', () => ({ hash: 'a' })).catch(({ name }) => name);"
    assert node(damaged, **device) == "SyntaxError" and Path(device["file"]).read_text() == "[{"


def test_an_app_serves_people_and_repeats_lost_requests(tmp_path: Path, node: Any) -> None:
    with serving(study_file(tmp_path, CENTRAL, users=3)) as service, contextlib.closing(Door(service)) as door:
        door.fault = lambda number, reply: None if number in (1, 6) else reply
        found = node(
            STEPS
            + """
            const app = new AppClient(url, key), people = [];
            for (const user of ["a", "b", "a", "c"]) people.push(await app.arrive(user));
            const extra = await app.arrive("one too many"), [first, second] = people;
            const actions = [await app.act(first, 0, 0), await app.act(extra, 0, 0)];
            const many = await app.actMany([first, extra].map((one) => [one, 0, 0]));
            await app.finish(first, steps);
            await app.finishMany([[second, steps], [people[3], steps], [extra, steps]]);
            const refused = await Promise.all([
              new AppClient(url, "prk_wrong").arrive("a"), app.act(first, 99, 0), app.finish(first, { cured: 1 }),
              app.finish(first, [{ ...steps[0], next_state: 2 }, steps[1]]),
            ].map((one) => one.catch(({ status, reason }) => [status, reason])));
            let message; try { new AppClient("https://service.example", key); } catch (error) { ({ message } = error); }
            return { people, extra, actions, many, refused, message };
            """,
            url=door.url,
            key=service.key,
        )
        assert [one["number"] for one in found["people"]] == ["0", "1", "0", "2"]
        assert found["extra"] == {"ticket": ""}
        assert {*found["actions"], *found["many"]} <= {0, 1} and len(found["many"]) == 2
        assert found["refused"] == [
            [403, "wrong-key"], [422, "out-of-range"], [404, "not-offered"], [422, "bad-record"]
        ]  # fmt: skip
        assert "v1/studies/river" in found["message"]
        service.run(service.served.purge())
        late = """
            const app = new AppClient(url, key), none = await app.arrive("d");
            await app.finish(first, steps);
            return [none, await app.act(none, 0, 0)];
        """
        none, action = node(STEPS + late, url=door.url, key=service.key, first=found["people"][0])
        assert none == {"ticket": ""} and action in (0, 1)
        names = [what for what, _ in door.seen]
        assert names.count("episodes:batch") == 1 and door.seen[0] == door.seen[1]


def test_a_service_serves_the_files_of_the_package_and_nothing_else(phone: Service, app: Path) -> None:
    kinds = {".mjs": "text/javascript", ".ts": "text/plain", ".json": "application/json"}
    for name in PACKAGE_FILES:
        reply = phone.ask("GET", f"/client/{name}")
        assert reply.status == 200 and reply.body == (app / "node_modules" / "privrl-client" / name).read_bytes()
        assert reply.headers["content-type"].split(";")[0] == kinds[Path(name).suffix]
        assert reply.headers["cache-control"] == "no-cache" and reply.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in reply.headers  # other origins ship their own copy
        again = phone.ask("GET", f"/client/{name}", headers={"if-none-match": reply.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
    for name in (
        "",
        "vectors.json",
        "demo.html",
        "..",
        "../listening.py",
        "%2e%2e/listening.py",
        "..%2flistening.py",
        "/etc/passwd",
    ):
        assert phone.ask("GET", f"/client/{name}").reason == "not-found", name
