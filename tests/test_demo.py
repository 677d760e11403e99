"""The demo learns, compares, saves what it promises, and keeps a policy whose noise nobody can replay."""

import json
from pathlib import Path

import pytest
from test_cli import call

import privrl
from privrl.reports.demo_study import DemoStudy
from privrl.reports.sepsis_demo import DemoSize, run_sepsis_study, save_study

SIZE = DemoSize(episodes=400, seeds=2, epsilon=1.5, horizon=4)


@pytest.fixture(scope="module")
def world() -> privrl.envs.Env:
    return privrl.envs.make("riverswim", states=3, horizon=4)


@pytest.fixture(scope="module")
def learned(world: privrl.envs.Env) -> tuple[DemoStudy, list[str]]:
    steps: list[str] = []
    return run_sepsis_study(SIZE, seed=3, env=world, progress=steps.append), steps


def test_study_has_every_comparison(learned: tuple[DemoStudy, list[str]], world: privrl.envs.Env) -> None:
    study, steps = learned
    assert len(steps) == SIZE.fits == 9
    assert sorted(study.private) == [0.5, 1.5, 4.5]
    assert all(len(values) == 2 for values in (study.non_private, *study.private.values()))
    assert study.baselines["optimal"] == pytest.approx(float(world.optimal_value))
    assert study.baselines["behaviour"] == pytest.approx(float(world.value(world.behaviour_policy())))
    everything = [*study.non_private, *(v for values in study.private.values() for v in values), study.value]
    assert all(0 <= value <= study.baselines["optimal"] + 1e-9 for value in everything)
    assert study.value == pytest.approx(float(world.value(study.result.policy)))


def test_repetitions_replay_and_the_kept_policy_has_real_noise(
    learned: tuple[DemoStudy, list[str]], world: privrl.envs.Env
) -> None:
    study, _ = learned
    again = run_sepsis_study(SIZE, seed=3, env=world)
    assert (again.private, again.non_private) == (study.private, study.non_private)
    assert study.result.certificate.noise_source == "system"
    assert study.result.certificate.epsilon == pytest.approx(1.5, rel=1e-3)
    assert study.result.certificate.unit == "stay"


def test_saved_study_is_complete_and_certified(learned: tuple[DemoStudy, list[str]], tmp_path: Path) -> None:
    study, _ = learned
    folder = save_study(study, tmp_path / "demo")
    assert sorted(path.name for path in folder.iterdir()) == ["policy", "report.html", "values.json"]
    values = json.loads((folder / "values.json").read_text())
    assert [entry["epsilon"] for entry in values["private"]] == [0.5, 1.5, 4.5]
    certificate = json.loads((folder / "policy" / "certificate.json").read_text())
    assert values["certificate"] == {**certificate, "files": {}} and certificate["files"]
    assert call("certify", folder / "policy", "--json").json()["ok"] is True
    hint = call("certify", folder)
    assert hint.code == 2 and str(folder / "policy") in hint.err
    save_study(study, folder)  # an earlier demo is replaced
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other files"):
        save_study(study, folder)
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_report_that_cannot_be_written_leaves_nothing(
    learned: tuple[DemoStudy, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(study: DemoStudy) -> str:
        raise RuntimeError("no ink")

    monkeypatch.setattr("privrl.reports.sepsis_demo.render_demo", broken)
    with pytest.raises(RuntimeError, match="no ink"):
        save_study(learned[0], tmp_path / "demo")
    assert list(tmp_path.iterdir()) == []


def test_command_ends_in_a_table_a_certificate_and_a_file_to_look_at(
    learned: tuple[DemoStudy, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[DemoSize] = []

    def prepared(size: DemoSize, *, seed: int, progress: object) -> DemoStudy:
        sizes.append(size)
        return learned[0]

    monkeypatch.setattr("privrl.cli.demo.run_sepsis_study", prepared)
    shown = call("demo", "--out", tmp_path / "demo", "--seeds", "2", "--episodes", "400", "--epsilon", "1.5")
    assert shown.code == 0, shown.err
    assert "doctors' most frequent treatment" in shown.out and "epsilon = 1.5" in shown.out
    assert shown.out.rstrip().splitlines()[-1].startswith(f"The report is in {tmp_path / 'demo' / 'report.html'}")
    assert (sizes[0].episodes, sizes[0].seeds, sizes[0].epsilon, sizes[0].horizon) == (400, 2, 1.5, 20)
    content = call("demo", "--out", tmp_path / "demo", "--quick", "--json", "--overwrite").json()
    assert content["value"] == learned[0].value and Path(content["report"]).is_file()
    assert sizes[1] == DemoSize.quick()


@pytest.mark.slow
def test_quick_demo_runs_on_the_sepsis_world(tmp_path: Path) -> None:
    content = call("demo", "--quick", "--out", tmp_path / "demo", "--seed", "1", "--json").json()
    assert content["baselines"]["optimal"] > content["baselines"]["behaviour"] > content["baselines"]["uniform"]
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
