"""Runs as tables, as files, and compared with each other."""

from pathlib import Path

import numpy as np
import pyarrow.compute
import pyarrow.csv
import pytest
from test_cli import call

import privrl
from privrl.cli import run as _run
from privrl.studies.results.run_result import RUN

HOW = {"delta": 1e-6, "episodes": 60, "seeds": 4, "key": 3}


@pytest.fixture(scope="module")
def simulated() -> privrl.Run:
    return privrl.run("riverswim", "dp-ucbvi", epsilon=1, **HOW)


def test_a_table_has_the_total_regret_in_the_last_row_of_every_seed(simulated: privrl.Run) -> None:
    table = simulated.table()
    assert table.column_names == ["recipe", "epsilon", "seed", "episode", "regret"]
    assert set(table["recipe"].to_pylist()) == {"dp-ucbvi"}
    last = table.filter(pyarrow.compute.equal(table["episode"], 60))
    np.testing.assert_allclose(last["regret"], simulated.total_regret)
    np.testing.assert_allclose(simulated.regret.cumsum(axis=1)[:, simulated.block_ends - 1].ravel(), table["regret"])


def test_a_saved_run_is_the_run(simulated: privrl.Run, tmp_path: Path) -> None:
    loaded = privrl.Run.load(simulated.save(tmp_path / "run", facts="by hand"), facts="by hand")
    np.testing.assert_array_equal(loaded.block_regret, simulated.block_regret)
    np.testing.assert_array_equal(loaded.policy.probabilities, simulated.policy.probabilities)
    assert loaded.certificate == simulated.certificate
    assert (loaded.recipe, loaded.seconds) == (simulated.recipe, simulated.seconds)
    with pytest.raises(ValueError, match="made in another way"):
        privrl.Run.load(tmp_path / "run", facts="by another hand")


def test_a_damaged_run_is_refused(simulated: privrl.Run, tmp_path: Path) -> None:
    simulated.save(tmp_path)
    with (tmp_path / RUN).open("wb") as file:
        np.savez(file, kind="TabularPolicy", block_ends=[1, 2], block_regret=np.zeros((1, 3)))
    with pytest.raises(ValueError, match="not a saved run, or is damaged"):
        privrl.Run.load(tmp_path)


def test_only_what_can_be_loaded_is_saved(simulated: privrl.Run, tmp_path: Path) -> None:
    class Unknown:
        pass

    other = privrl.Run(Unknown(), simulated.certificate, simulated.block_ends, simulated.block_regret, 1.0)
    with pytest.raises(TypeError, match="cannot be saved"):
        other.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_permutation_test_counts_permutations(simulated: privrl.Run) -> None:
    """With 4 seeds on each side there are 70 ways to share them out, of which the two most extreme count."""
    shifted = privrl.Run(simulated.policy, simulated.certificate, simulated.block_ends, simulated.block_regret + 9, 1.0)
    found = simulated.compare(shifted)
    assert found.p_value == pytest.approx(2 / 70)
    assert found.difference == pytest.approx(-9 * 60)
    assert simulated.compare(shifted, paired=True).p_value == pytest.approx(2 / 2**4)
    assert simulated.compare(simulated).p_value == 1.0


def test_the_policy_of_a_result_is_a_table() -> None:
    result = privrl.fit("env:riverswim", "dp-apvi", epsilon=1, delta=1e-6, episodes=50, key=0)
    table = result.table()
    assert table.num_rows == result.policy.probabilities.size
    np.testing.assert_allclose(np.asarray(table["probability"]).reshape(result.policy.probabilities.shape).sum(-1), 1.0)


def test_several_budgets_are_run_kept_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common = ("run", "dp-ucbvi", "--env", "riverswim", "--episodes", "60", "--delta", "1e-6", "--seeds", "2")
    several = (*common, "--epsilon", "1,5", "--seed", "7", "--out", tmp_path / "runs", "--csv", tmp_path / "r.csv")
    first = call(*several, "--json").json()["runs"]
    alone = call(*common, "--epsilon", "5", "--seed", "7", "--json").json()
    assert first[1]["regret"] == alone["regret"]
    table = pyarrow.csv.read_csv(tmp_path / "r.csv")
    assert set(np.round(table["epsilon"].to_pylist())) == {1, 5}
    made = [file.stat().st_mtime_ns for file in sorted((tmp_path / "runs").rglob("*.npz"))]
    assert call(*several, "--json").code == 2, "the table exists"
    assert call(*several, "--overwrite", "--json").json()["runs"] == first, "finished budgets are read, not run again"
    (tmp_path / "r.csv").unlink()
    other = call(*[word if word != "60" else "61" for word in several])
    assert other.code == 2 and "made in another way" in other.err and "--overwrite" in other.err
    monkeypatch.setattr(_run, "describe_code", lambda: {"source": "another"})
    assert "by other code" in call(*several).err
    assert made == [file.stat().st_mtime_ns for file in sorted((tmp_path / "runs").rglob("*.npz"))]
    assert call(*several, "--overwrite").code == 0
    assert not set(made) & {file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("*.npz")}
