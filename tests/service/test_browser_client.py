"""The browser's client in node: the published vectors, and servers that send what they should not."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from service.vectors import VECTORS, text_of, vectors

import privrl

CLIENT = Path(privrl.__file__).parent / "service" / "client" / "privrl-client.mjs"
HERE = Path(__file__).parent


def node(script: str) -> Any:
    """What a script prints as JSON; it knows `client`, `vectors` and what both modules export."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed, so the browser's client is not run in it.")
    start = f"""
        import {{ readFileSync }} from "node:fs";
        import * as client from {json.dumps(CLIENT.as_uri())};
        import {{ replay }} from {json.dumps((HERE / "replay.mjs").as_uri())};
        import {{ greedy, hostile, tooFew, unequal, upgraded }} from {json.dumps((HERE / "hostile.mjs").as_uri())};
        const vectors = JSON.parse(readFileSync({json.dumps(str(VECTORS))}, "utf8"));
    """
    command = [program, "--input-type=module", "-e", start + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_vectors_are_what_python_makes() -> None:
    assert VECTORS.read_text() == text_of(vectors())


def test_the_client_makes_the_messages_of_the_vectors() -> None:
    assert node("console.log(JSON.stringify(await replay(client, vectors)));") == []


def test_the_client_is_small() -> None:
    assert len(gzip.compress(CLIENT.read_bytes(), 9)) <= 4096


def test_a_hostile_server_gets_no_report() -> None:
    """Every damage to an answer is refused in `open` or `begin`, before there is a record; nothing is sent or kept."""
    number, *wrong = node("console.log(JSON.stringify(await hostile(client, vectors)));")
    assert wrong == []
    assert int(number) > 150


def test_no_server_gets_more_messages_than_the_study_says() -> None:
    """With two tabs and 40 visits; an honest order of answers gets all of them."""
    for server, reports, sent, charged in node("console.log(JSON.stringify(await greedy(client, vectors)));"):
        assert 1 <= sent <= reports == charged, server
        assert sent == (1 if server == "no answers" else reports) or server == "anything"


def test_a_device_that_reported_with_an_earlier_client_sends_the_same_bytes() -> None:
    found = node("console.log(JSON.stringify(await upgraded(client, vectors)));")
    assert found == [3, True, "the cap on epsilon is reached"]


def test_a_cap_that_is_text_is_a_decimal_number() -> None:
    """On the code before, "10" was read to base 16."""
    found = node("""
        const above = ["9.5", "10", "0x9", "a", "-1", ""].map((cap) => {
          try { return client.exceeds(["0x1.4p+3"], cap); } catch ({ message }) { return message; }
        });
        console.log(JSON.stringify(above));
    """)
    assert found == [True, False, True, "give a cap", "give a cap", "give a cap"]


def test_truth_and_lie_draw_the_same_words() -> None:
    assert node("console.log(JSON.stringify(unequal(client)));") == []


def test_whether_a_report_is_sent_does_not_depend_on_the_answer() -> None:
    assert node("console.log(JSON.stringify(await tooFew(client, vectors)));") == 0
