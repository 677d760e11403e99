"""`privrl report` writes one page about what a folder holds, replaces nothing unasked, repeats what does not hold."""

import json
from pathlib import Path

import pytest
from contract import tiny_data, tiny_world
from test_cli import call
from test_report import AUDITED, audit_folder, figure_folder, stands_alone

import privrl
from privrl.recipes.all_recipes import recipes


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    env = tiny_world()
    result = privrl.fit(tiny_data(env), recipes["dp-apvi"].build(env), privrl.Central(2.0, 1e-6), unit="patient")
    return result.save(tmp_path_factory.mktemp("saved") / "policy")


def test_a_result_gets_a_page_beside_its_folder(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path.name for path in policy.iterdir())
    monkeypatch.chdir(policy.parent)
    called = call("report", "policy")
    assert (called.code, called.err) == (0, "")
    assert called.out == "The report is in policy.html: open it in a browser.\n"
    page = stands_alone((policy.parent / "policy.html").read_text())
    assert "learned this policy from 200 patients" in page.text and "epsilon = 2, delta = 1e-06" in page.text
    assert sorted(path.name for path in policy.iterdir()) == before  # a saved result stays as it is
    assert call("report", "policy").code == 2  # an earlier report is not replaced unless asked for
    monkeypatch.chdir(policy)
    assert call("report", ".", "--overwrite").code == 0
    assert sorted(path.name for path in policy.parent.iterdir()) == ["policy", "policy.html"]


def test_no_link_is_followed_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("mine")
    audit = audit_folder(tmp_path, AUDITED)
    (tmp_path / f".{audit.name}.html.part").symlink_to(tmp_path / "diary")
    assert call("report", audit).code == 0
    assert (tmp_path / "diary").read_text() == "mine" and "<h1>" in (tmp_path / f"{audit.name}.html").read_text()


def test_json_names_the_file_and_the_kind(policy: Path, tmp_path: Path) -> None:
    audit, figure = audit_folder(tmp_path, AUDITED), figure_folder(tmp_path)
    for folder, kind in ((policy, "result"), (audit, "audit"), (figure, "figure")):
        file = tmp_path / f"{kind}.html"
        content = call("report", folder, "--out", file, "--json").json()
        assert content == {"folder": str(folder), "kind": kind, "report": str(file), "problems": []}
        assert stands_alone(file.read_text()).seen.count("h1") == 1


def test_a_certificate_that_was_altered_is_denounced(policy: Path, tmp_path: Path) -> None:
    altered = tmp_path / "altered"
    altered.mkdir()
    for path in policy.iterdir():
        (altered / path.name).write_bytes(path.read_bytes())
    content = json.loads((policy / "certificate.json").read_text())
    (altered / "certificate.json").write_text(json.dumps(content | {"epsilon": 0.5}))
    called = call("report", altered)
    assert called.code == 1 and "does NOT hold" in called.err and "`epsilon` is written as 0.5" in called.err
    assert "Do not rely on anything on this page" in stands_alone((tmp_path / "altered.html").read_text()).text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("{tmp}/nowhere",), "There is no folder"),
        (("{tmp}",), "Did you mean `{tmp}/audit`?"),
        (("{tmp}/audit", "--out", "{tmp}/page.pdf"), "must end in .html"),
        (("{tmp}/audit", "--out", "{tmp}/no/page.html"), "no folder `{tmp}/no`"),
        (("{tmp}/audit", "--out", "{tmp}/thesis.html"), "exists already"),
        (("{tmp}/audit", "--out", "{tmp}/folder.html"), "is a folder"),
        (("{tmp}/damaged",), "Did you mean"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    arguments: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    audit_folder(tmp_path, AUDITED)
    (tmp_path / "thesis.html").write_text("<h1>years of work</h1>")
    (tmp_path / "folder.html").mkdir()
    if "damaged" in arguments[0]:
        (tmp_path / "damaged" / "policy").mkdir(parents=True)
        (tmp_path / "damaged" / "policy" / "certificate.json").write_text("{}")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    called = call("report", *(argument.format(tmp=tmp_path) for argument in arguments))
    assert called.code == 2 and called.out == ""
    assert complaint.format(tmp=tmp_path) in called.err and "Traceback" not in called.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert (tmp_path / "thesis.html").read_text() == "<h1>years of work</h1>"


def test_a_damaged_result_is_refused(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "certificate.json").write_text("{}")
    called = call("report", tmp_path / "damaged")
    assert called.code == 2 and "The certificate is malformed" in called.err
    for path in policy.iterdir():
        if path.name != "certificate.json":
            (tmp_path / "damaged" / path.name).write_bytes(path.read_bytes())
    called = call("report", tmp_path / "damaged")
    assert called.code == 2 and "`epsilon` is missing" in called.err
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]
