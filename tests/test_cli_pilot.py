"""`privrl pilot`: plans, protocol files, simulations, and what was released so far."""

import dataclasses
import hashlib
import json
import math

import jax.numpy as jnp
import pytest
from mdp.policy_vectors import vectors

import privrl
from privrl.cli.main import main
from privrl.learners.trials.protocol import Protocol
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy, count_cells
from privrl.mdp.exported_policy import ON_MEASUREMENTS, ExportedPolicy
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.studies.results.arm_policies import read_arm_policies
from privrl.studies.results.binding import policy_sha256


def call(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    result = privrl.fit("env:riverswim", "dp-tdfp", epsilon=1, delta=1e-6, episodes=300, key=0)
    return result.save(tmp_path_factory.mktemp("saved") / "policy")


def test_plan_states_power_people_and_boundaries(capsys):
    code, out, _ = call(
        capsys, "pilot", "plan", "--practice", 0.625, "--gain", 0.25, "--people", 2000, "--epsilon", 1, "--json"
    )
    found = json.loads(out)
    assert code == 0 and found["better"] > 0.99 and found["expected_people"] == pytest.approx(564, rel=0.05)
    assert found["looks"][0]["better_above"] is None and found["looks"][-1]["people"] == 2000
    assert found["arrive_during_patience"] is None and found["expected_enrolled"] is None


def test_plan_finds_the_number_of_people_and_counts_those_who_arrive_meanwhile(capsys):
    arguments = ("pilot", "plan", "--practice", 62.5, "--gain", 10, "--high", 100, "--epsilon", 1)
    code, out, _ = call(capsys, *arguments)
    assert code == 0 and "at most 1,400 people shows a gain of 10 with probability 0.90" in out
    assert "give `--per-day` to add them" in out
    code, out, _ = call(capsys, *arguments, "--per-day", 7, "--patience", 10, "--json")  # one block
    found = json.loads(out)
    more = found["expected_enrolled"] - found["expected_people"]
    assert found["arrive_during_patience"] == 70 and 50 < more < 70  # no one is enrolled after the last look
    code, out, _ = call(capsys, *arguments, "--per-day", 7, "--patience", 10)
    assert f"it enrols {found['expected_enrolled']:,.0f} people on average" in out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--practice", 0.9, "--gain", 0.2, "--epsilon", 1), "must lie within"),
        (("--practice", 0.9, "--gain", 0.05, "--epsilon", 1, "--low", 1), "lower bound must be smaller"),
        (("--practice", 0.9, "--gain", 0.05, "--epsilon", 1, "--per-day", 0), "--per-day"),
        (("--practice", 0.5, "--gain", 0.0005, "--epsilon", 0.1), "A million people"),
        (("--practice", 0.5, "--gain", -0.05, "--epsilon", 1), "`--gain` is -0.05. Give `--people`"),
        (("--practice", 0.5, "--gain", 0.1, "--epsilon", 1, "--patience", -3), "`--patience` is -3 days"),
    ],
)
def test_plans_that_make_no_sense_are_refused(capsys, arguments, complaint):
    code, _, err = call(capsys, "pilot", "plan", *arguments)
    assert code == 2 and complaint in err


def test_a_plan_for_harm_says_how_often_it_is_found(capsys):
    arguments = ("pilot", "plan", "--practice", 0.5, "--gain", -0.2, "--people", 1000, "--epsilon", 3, "--looks", 2)
    code, out, _ = call(capsys, *arguments)
    assert code == 0 and "at most 1,000 people shows a loss of 0.2 with probability 1.00" in out


def test_init_takes_arms_and_bounds_from_the_folder(capsys, folder):
    out = folder.parent / "pilot.toml"
    arguments = ("pilot", "init", folder, "--people", 400, "--epsilon", 1, "--delta", "1e-6", "--out", out)
    code, said, _ = call(capsys, *arguments, "--looks", 4)
    protocol = Protocol.read(out)
    assert code == 0 and protocol.sha256 in said
    assert [arm.name for arm in protocol.arms] == ["practice", "advice"] and protocol.arms[1].policy == "policy"
    bounds = privrl.Result.load(folder).certificate.bounds
    assert protocol.outcome.high == bounds["return bound"] and protocol.outcome.missing == 0
    assert "looks = 4" in out.read_text() and "worse = 0.05" in out.read_text()  # all that is fixed is written down
    assert call(capsys, *arguments)[0] == 2  # it exists
    code, _, err = call(capsys, *arguments, "--overwrite", "--arms", "assisted")
    assert code == 2 and "no assisted policy" in err
    code, _, err = call(capsys, *arguments, "--overwrite", "--arms", "half")
    assert code == 2 and "`--arms`" in err


def test_a_policy_that_was_withheld_is_not_tried(capsys, folder):
    result = privrl.Result.load(folder)
    silent = AssistedPolicy.from_practice([0] * 6, [[1.0, 0.0]] * 6, horizon=100).without_advice()
    withheld = dataclasses.replace(result, policy=silent, advice=result.policy)
    place = withheld.save(folder.parent / "withheld")
    out = folder.parent / "withheld.toml"
    arguments = ("pilot", "init", place, "--people", 400, "--epsilon", 1, "--delta", "1e-6", "--out", out)
    code, _, err = call(capsys, *arguments, "--arms", "whole,assisted")
    assert code == 2 and "would compare practice with practice" in err and not out.exists()
    assert call(capsys, *arguments)[0] == 0 and Protocol.read(out).arms[1].use == "whole"


def _withheld_on_measurements(folder):
    """A saved result whose advice on measurements was withheld, as a fit with `--evaluate` saves it."""
    content = next(one["policy"] for one in vectors() if one["policy"]["kind"] == ON_MEASUREMENTS)
    advice = MeasuredPolicy.from_json(content)
    sums = jnp.zeros(advice.features.dim)
    silent = AssistedMeasuredPolicy(advice, sums, jnp.zeros(count_cells(advice.num_actions)), horizon=4)
    result = dataclasses.replace(privrl.Result.load(folder), policy=silent, advice=advice)
    certificate = dataclasses.replace(result.certificate, result_sha256=policy_sha256(silent))
    place = folder.parent / "measured"
    return dataclasses.replace(result, certificate=certificate).save(place), advice


def test_apps_read_the_withheld_advice_of_a_pilot_on_measurements(capsys, folder):
    """Before, the guide sent apps to `policy.json`, which names no choice if it was withheld."""
    place, advice = _withheld_on_measurements(folder)
    out, file = folder.parent / "measured.toml", folder.parent / "measured-advice.json"
    arguments = ("pilot", "init", place, "--people", 400, "--epsilon", 1, "--delta", "1e-6", "--out", out)
    code, said, err = call(capsys, *arguments)
    assert code == 0, err
    assert str(file) in said.replace("\n", "") and "is the assisted policy" in said
    row = {"map": 70.0, "ward": "icu", "lactate": 2.0}
    assert ExportedPolicy.load(place / "policy.json").advise(row).choice is None
    told = ExportedPolicy.load(file).start_episode().advise(row)
    assert told.action == told.choice == int(advice(row)) and told.probability == 1.0
    protocol = Protocol.read(out)
    (arm,) = protocol.policies
    assert arm.file == file.name and hashlib.sha256(file.read_bytes()).hexdigest() == arm.file_sha256
    assert Protocol.from_toml(protocol.to_toml()).sha256 == protocol.sha256
    other = dataclasses.replace(arm, file_sha256="0" * 64)
    assert dataclasses.replace(protocol, arms=(protocol.arms[0], other)).sha256 != protocol.sha256
    read_arm_policies(protocol, out.parent)
    assert call(capsys, *arguments)[0] == 2  # it exists
    out.unlink()
    code, _, err = call(capsys, *arguments)
    assert code == 2 and file.name in err and "exists already" in err
    file.write_bytes(file.read_bytes().replace(b'"support": 0.1', b'"support": 0.2'))
    with pytest.raises(ValueError, match="is not the file that the protocol names"):
        read_arm_policies(protocol, out.parent)
    file.unlink()
    with pytest.raises(ValueError, match="is missing. Restore it"):
        read_arm_policies(protocol, out.parent)


def test_an_arm_that_the_service_answers_needs_no_file(capsys, folder):
    out = folder.parent / "states.toml"
    arguments = ("pilot", "init", folder, "--people", 400, "--epsilon", 1, "--delta", "1e-6", "--out", out)
    assert call(capsys, *arguments)[0] == 0
    assert not Protocol.read(out).policies[0].file and not list(out.parent.glob("states-*"))


def test_simulate_and_show(capsys, folder):
    out = folder.parent / "small.toml"
    arguments = ("pilot", "init", folder, "--people", 200, "--epsilon", 5, "--delta", "1e-6", "--out", out)
    assert call(capsys, *arguments, "--looks", 2)[0] == 0
    code, said, _ = call(capsys, "pilot", "simulate", out, "--world", "riverswim", "--seeds", 20, "--seed", 3, "--json")
    found = json.loads(said)
    world, policy = privrl.envs.make("riverswim"), privrl.Result.load(folder).policy
    exact = [float(world.value(p)) for p in (world.behaviour_policy(), policy)]
    assert code == 0 and found["means"] == pytest.approx(exact, abs=0.03) and found["agree"]
    assert math.isclose(sum(found["serving"]), 1)
    code, said, _ = call(capsys, "pilot", "show", out)
    assert code == 0 and "No look has been made yet." in said and Protocol.read(out).sha256 in said
    for wrong in (
        (),
        ("--world", "riverswim", "--means", "1,2"),
        ("--means", "1,2,3"),
        ("--means", "0,1", "--seeds", 0),
    ):
        assert call(capsys, "pilot", "simulate", out, *wrong)[0] == 2
    for world, complaint in (("lq-scalar", "not a finite environment"), ("severity-48", "has 50 states, 4 actions")):
        code, _, err = call(capsys, "pilot", "simulate", out, "--world", world)
        assert code == 2 and complaint in err
    for means, complaint in (
        (".5,99", "must lie within [0, "),
        ("a,b", "numbers separated by commas"),
        ("nan,1", "lie"),
    ):
        code, _, err = call(capsys, "pilot", "simulate", out, "--means", means)
        assert code == 2 and complaint in err
    (folder / "policy.npz").write_bytes(b"another")
    code, _, err = call(capsys, "pilot", "simulate", out, "--world", "riverswim")
    assert code == 2 and "policy" in err
