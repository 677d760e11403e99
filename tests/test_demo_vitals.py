"""The demo of real tables: its export holds the people that were simulated, and its commands run as they are shown."""

from pathlib import Path

import jax
import numpy as np
import pytest
from test_cli import call

import privrl
from privrl.data.dataset import AbstractDataset
from privrl.data.schema.table_description import TableDescription
from privrl.data.tables.parquet import read_parquet
from privrl.envs.patients.vitals import Vitals
from privrl.mdp.measurements import Feature
from privrl.reports.vitals_demo import FILES, list_commands, write_export, write_schema
from privrl.studies.simulation.sampled_tables import sampled


def test_the_export_becomes_the_people_who_were_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_export(Path("raw.csv"), 60, seed=3)
    write_schema(Path("stays.toml"))
    for words in list_commands(1.0, 1e-6, None)[:2]:
        shown = call(*words)
        assert shown.code == 0, shown.err
    assert "as `stays.toml` says" in shown.out
    read = read_parquet("stays.parquet", **TableDescription.read("stays.toml").columns)
    assert read.num_units == 60
    found, people = (_whole(data) for data in (read, sampled(Vitals(), 60, jax.random.key(3))))
    assert read.num_actions == Vitals.num_actions
    assert all(np.array_equal(found[name], people[name]) for name in ("lengths", "actions", "rewards"))
    bounds = np.array([[column.low, column.high] for column in Vitals.columns if isinstance(column, Feature)])
    np.testing.assert_allclose(found["states"], np.clip(people["states"], *bounds.T), atol=0.0051)


def _whole(data: AbstractDataset) -> dict[str, np.ndarray]:
    """All people, in the order of their ids."""
    blocks = list(data.blocks())
    names = ("lengths", "actions", "rewards", "states")
    return {name: np.concatenate([getattr(block, name) for block in blocks]) for name in names}


def test_holding_out_people_is_one_setting() -> None:
    fit = list_commands(1.0, 1e-6, 0.3)[2]
    assert fit[fit.index("--evaluate") + 1] == "0.3" and "--evaluate" not in list_commands(1.0, 1e-6, None)[2]


def test_what_belongs_to_the_other_demo_is_refused(tmp_path: Path) -> None:
    shown = call("demo", "vitals", "--seeds", "2", "--out", tmp_path / "demo")
    assert shown.code == 2 and "`--seeds` repeats the demo of sepsis" in shown.err
    shown = call("demo", "vitals", "--episodes", "0", "--out", tmp_path / "demo")
    assert shown.code == 2 and "`episodes` is 0" in shown.err and list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_it_ends_in_a_certified_policy_and_a_page_with_pictures(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    content = call("demo", "vitals", "--quick", "--seed", "1", "--out", out, "--json").json()
    assert {path.name for path in out.iterdir()} == FILES
    assert content["baselines"]["optimal"] > content["baselines"]["behaviour"] > content["baselines"]["uniform"]
    assert call("certify", out / "policy", "--json").json()["ok"] is True
    assert privrl.Result.load(out / "policy").certificate.noise_source == "system"
    page = (out / "report.html").read_text()
    assert "Action by region" in page and "norepinephrine_mcg_kg_min 0.05 or more" in page
