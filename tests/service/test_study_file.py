"""Study files: every fault in one error, and what they make."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from postgres import Cluster
from service.serving import CENTRAL, LOCAL, study_file

import privrl
from privrl.privacy.store.errors import UnreachableError
from privrl.privacy.store.release_store import store_exists
from privrl.service.opening import begin_study, find_differences, open_store
from privrl.service.study_file import read_study_file

SIZES = """
[world]
states = 3
actions = 2
horizon = 4
rewards = [[0.005, 0.0], [0.0, 0.0], [0.0, 1.0]]
"""


def faults(folder: Path, text: str) -> str:
    path = folder / "study.toml"
    path.write_text(text)
    with pytest.raises(ValueError) as found:
        read_study_file(path)
    return str(found.value)


def test_every_fault_is_named_in_one_error(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        'kind = "both"\nname = "A b"\nusers = 0\nepsilon = -1\ndelta = 2.0\ncode = "x"\n[world]\nstates = "3"\n',
    )
    for word in ("kind", "name", "users", "epsilon", "delta", "code", "recipe", "store", "world.states"):
        assert f"`{word}`" in found, word


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("patience = 1000.0\n", "", "`patience` is missing"),
        ('"dp-ucbvi"', '"ldp-ucbvi"', "with trust 'central'"),
        ('"dp-ucbvi"', '"private-lq"', "finite worlds"),
        ('"dp-ucbvi"', '"dp-ucbvy"', "dp-ucbvy"),
        ('"riverswim"', '"riversvim"', "riverswim"),
        ('"riverswim"', '"vitals"', "vitals"),
        ('"riverswim"\narguments = { states = 3, horizon = 4 }', '"riverswim"\nstates = 3', "Remove them"),
        (
            'env = "riverswim"\narguments = { states = 3, horizon = 4 }',
            "states = 3",
            "`states`, `actions` and `horizon`",
        ),
        ("epsilon = 1.0", "epsilon = inf", "`epsilon` must be finite"),
        ("epsilon = 1.0", "epsilon = true", "`epsilon`"),
        ("users = 40", "users = 40\nusers = 41", "is not TOML"),
        ("users = 40\n", "", "`users` is missing"),
        ("users = 40", "open_ended = false", "`open_ended = true`"),
        ("users = 40", "users = 40\nopen_ended = true", "Remove one of them"),
        ("users = 40", "open_ended = 1", "`open_ended`"),
        ("users = 40", "open_ended = { epocs = 20 }", "`open_ended.epocs` is unknown. Did you mean `epoch`"),
        ("users = 40", "open_ended = { forget = 0.5 }", "say also after how many people"),
        ('"dp-ucbvi"\nusers = 40', '"dp-lsvi-ucb++@paper"\nopen_ended = true', "Give the number of people"),
        ('"dp-ucbvi"\nusers = 40', '"dp-lsvi-ucb"\nopen_ended = { epoch = 99, forget = 0.5 }', "cannot read sums"),
        ("horizon = 4 }", "horizon = 4, code = 'x' }", "code"),
    ],
)
def test_faults(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in CENTRAL
    assert words in faults(tmp_path, CENTRAL.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("states = 3", "states = 4", "world.rewards"),
        ("[[0.005", '[["x"', "world.rewards"),
        ("[[0.005", "[[7.0", "world.rewards"),
        ("[[0.005", "[[nan", "world.rewards"),
        ("horizon = 4", "horizon = 4\nterminal = [3]", "world.terminal"),
        ("horizon = 4", "horizon = 4\narrival_rewards = [0.0]", "world.arrival_rewards"),
        ("rewards = [", "rewards_ = [", "world.rewards_"),
        ("rewards = [[0.005, 0.0], [0.0, 0.0], [0.0, 1.0]]", "", "known rewards"),
    ],
)
def test_faults_of_sizes(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = CENTRAL.split("[world]")[0] + SIZES
    assert old in text
    assert words in faults(tmp_path, text.replace(old, new))


def test_sizes_and_a_world_declare_the_same_study(tmp_path: Path) -> None:
    """A study of sizes with the rewards of a world is the study of that world."""
    world = privrl.envs.RiverSwim(states=3, horizon=4)
    path = tmp_path / "study.toml"
    path.write_text((CENTRAL.split("[world]")[0] + SIZES).replace("STORE", "study.db"))
    file = read_study_file(path)
    assert file.world.problem().rewards is not None
    with privrl.ReleaseStore.in_memory() as store:
        privrl.Agent(file.learner(), file.privatizer(), num_users=40, store=store, patience=1_000.0)
        declared = store.describe()
    named = study_file(tmp_path / "named", CENTRAL)
    expected = (
        [] if world.mdp.reward.tolist() == [[[0.005, 0.0], [0.0, 0.0], [0.0, 1.0]]] else ["`recipe` or `[world]`"]
    )
    assert find_differences(named, declared) == expected


def test_a_study_is_frozen_once_it_is_begun(tmp_path: Path) -> None:
    file = study_file(tmp_path, CENTRAL)
    assert (tmp_path / "study.db").stat().st_mode & 0o777 == 0o600
    begin_study(file)  # again: the same
    with open_store(file) as store:
        shown = store.describe()
    assert find_differences(file, shown) == []
    file.path.write_text(file.path.read_text().replace("epsilon = 1.0", "epsilon = 2.0"))
    other = read_study_file(file.path)
    assert find_differences(other, shown) == ["`epsilon`, `delta` or `recipe`"]
    with pytest.raises(ValueError, match="belongs to a study that differs in `epsilon`"):
        begin_study(other)


def test_a_server_that_can_only_be_read_is_not_served(tmp_path: Path, postgres: Cluster) -> None:
    address = postgres.new()
    study_file(tmp_path, CENTRAL, address)
    path = tmp_path / "study.toml"
    path.write_text(path.read_text().replace(address, address + "%20-cdefault_transaction_read_only%3Don"))
    with pytest.raises(UnreachableError, match="is read-only"):
        open_store(read_study_file(path))


def test_a_study_that_was_not_begun_is_not_opened(tmp_path: Path, place: Path | str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(LOCAL.replace("STORE", str(place)))
    with pytest.raises(ValueError, match="privrl serve init"):
        open_store(read_study_file(path))
    assert not store_exists(place)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"STORE"', '"study.toml"', "must be different files"),
        ('"STORE"', '"./study.toml"', "must be different files"),
        ('"STORE"', '"a.db"\nlog = "a.db"', "must be different files"),
        ('"STORE"', '"mysql:///river"', "starts with `postgresql://`"),
        ('"STORE"', '"nowhere/a.db"', "the folder"),
        ('"STORE"', '"postgresql:///river"\nlog = "nowhere/a.log"', "the folder"),
        ('"central"', '"centrall"', '`kind`: must be "central" or "local"'),
        ('"river"', '"River!"', "lower-case letters"),
        ("[world]", 'devices = "all"\n[world]', '"open" or "key"'),
    ],
)
def test_faults_of_places_and_words(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in CENTRAL
    found = faults(tmp_path, CENTRAL.replace(old, new, 1))
    assert words in found and "regex" not in found and "enum" not in found


def test_a_file_that_is_none_and_one_with_a_mark(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ValueError, match="There is no study file"):
            read_study_file(path)
    path = tmp_path / "study.toml"
    path.write_text("\ufeff" + CENTRAL, encoding="utf-8")
    assert read_study_file(path).name == "river"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("users = 40", "open_ended = { ceiling = 1_099_511_627_776 }", "64 bits"),
        ('"dp-ucbvi"\nusers = 40', '"dp-ucbvi"\nusers = 1\nmin_block_distance = 1', "nothing to keep apart"),
    ],
)
def test_what_cannot_be_a_study_leaves_no_store(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(CENTRAL.replace(old, new).replace("STORE", "study.db"))
    with pytest.raises(ValueError, match=words):
        begin_study(read_study_file(path))
    assert [one.name for one in tmp_path.iterdir()] == ["study.toml"]


def test_several_reports_of_a_device(tmp_path: Path) -> None:
    file = study_file(tmp_path, LOCAL, max_episodes_per_unit=3)
    with open_store(file) as store:
        document = json.loads(store.fact("document", bytes))
    (part,) = document["parts"]
    assert (document["reports"], document["users"]) == (3, 40)
    assert 0.999 < 3 * Fraction(float.fromhex(part["epsilon"])) <= 1  # exactly
    far = LOCAL.replace("users = 40", "users = 40\nmax_episodes_per_unit = 2\nmin_block_distance = 1")
    assert "share epsilon" in faults(tmp_path, far)


def test_a_local_study_has_a_number_of_people(tmp_path: Path) -> None:
    assert "give a generous number of `users`" in faults(tmp_path, LOCAL.replace("users = 40", "open_ended = true"))


def test_reports_of_real_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(LOCAL.replace("ldp-ucbvi", "ldp-ucrl-vtr").replace("epsilon = 1.0", "epsilon = 1.0\ndelta = 1e-6"))
    with pytest.raises(ValueError, match="whole numbers only"):
        begin_study(read_study_file(path))


def test_a_study_without_delta_is_pure(tmp_path: Path) -> None:
    """Running sums need no delta; people may return."""
    returning = CENTRAL.replace("delta = 1e-6\n", "").replace("users = 40", "users = 40\nmax_episodes_per_unit = 3")
    file = study_file(tmp_path, returning)
    assert file.privatizer().budget.kind == "pure"
    with open_store(file) as store:
        shown = store.describe()
    assert find_differences(file, shown) == []


def test_a_missing_delta_is_named_with_its_remedy(tmp_path: Path) -> None:
    path = tmp_path / "river.toml"
    path.write_text(CENTRAL.replace("dp-ucbvi", "dp-lsvi-ucb++@paper").replace("delta = 1e-6\n", ""))
    with pytest.raises(ValueError, match=r"`river.toml` lacks `delta`: add `delta = 1e-6`\.$"):
        read_study_file(path)
