"""Commands and modules import what they need and no more, and JAX has 64 bits whichever module comes first."""

import importlib
import os
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import privrl

PACKAGES = [
    name
    for name in ("", ".contracts", ".data", ".envs", ".figures", ".mdp", ".privacy", ".recipes", ".statistics")
    if importlib.import_module(f"privrl{name}")
]
HEAVY = {"jax", "jaxlib", "equinox", "scipy", "matplotlib", "jaxtyping", "uvicorn", "prometheus_client", "dask"}
ARROW, NUMPY = {"pyarrow"}, {"numpy"}
OPTIONAL = {"dp_accounting", "gymnasium", "minari", "pandas"}
RAW = "id,t,x,a,r\n1,2026-01-01 00:00:00,1,0,1\n1,2026-01-01 02:00:00,1,0,1\n"
SCHEMA = 'unit = "id"\nstep = "step"\nfeature = ["x:0..2"]\naction = "a"\nnum_actions = 2\nreward = "r"\nhorizon = 9\n'
PREPARE = ("prepare", "raw.csv", "new.parquet", "--unit", "id", "--time", "t", "--every", "1h", "--last", "x")
COMMANDS: dict[tuple[str, ...], set[str]] = {
    (): ARROW | NUMPY,
    ("--help",): ARROW | NUMPY,
    ("--version",): ARROW | NUMPY,
    ("schema", "--help"): ARROW,
    ("schema", "init", "steps.parquet"): set(),
    ("schema", "check", "s.toml"): ARROW,
    ("schema", "check", "s.toml", "steps.parquet"): set(),
    ("prepare", "--help"): ARROW,
    (*PREPARE, "--action", "a", "--reward", "r", "--good", "high"): set(),
    ("shard", "steps.parquet", "parts", "--unit", "id", "--files", "1"): set(),
    ("serve", "key", "add", "study.toml", "--role", "app", "--name", "one"): ARROW,
    ("serve", "key", "list", "study.toml"): ARROW,
    ("serve", "client", "web"): ARROW | NUMPY,
}


def imported(program: str, *arguments: str, cwd: Path | None = None, **variables: str) -> set[str]:
    """The packages that a program has imported in a process of its own, which must not fail."""
    report = "import sys\nprint(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{report}", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_importing_privrl_imports_no_heavy_module() -> None:
    """What makes an import slow. Its seconds are not measured, because they depend on the machine."""
    assert not (HEAVY | ARROW | NUMPY | OPTIONAL | {"typer", "msgspec"}) & imported("import privrl")
    assert not (HEAVY | OPTIONAL | ARROW) & imported("import privrl.cli.main")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("inputs")
    (path / "raw.csv").write_text(RAW)
    (path / "s.toml").write_text(SCHEMA)
    (path / "study.toml").write_text('kind = "central"\nname = "river"\nstore = "study.db"\n')
    privrl.ReleaseStore(path / "study.db").close()
    columns = {"id": ["1", "1"], "step": [0, 1], "x": [1.0, 2.0], "a": [0, 1], "r": [0.0, 1.0]}
    pq.write_table(pa.table(columns), path / "steps.parquet")
    return path


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_command_imports_no_more_than_it_needs(arguments: tuple[str, ...], folder: Path) -> None:
    program = "import sys\nfrom privrl.cli import main\nassert main(sys.argv[1:]) == (0 if sys.argv[1:] else 2)"
    found = imported(program, *arguments, cwd=folder)
    store = {"jaxtyping"} if arguments[:2] == ("serve", "key") else set()  # opens a store, whose arrays have types
    assert not found & ((HEAVY | COMMANDS[arguments]) - store)


@pytest.mark.parametrize(
    ("program", "allowed"),
    [
        ("import privrl", set()),
        ("import privrl.data, privrl.mdp, privrl.privacy, privrl.envs, privrl.recipes", set()),
        ("import privrl; assert 'fit' in dir(privrl) and 'read_parquet' in dir(privrl.data)", set()),
        ("from privrl.mdp import ExportedPolicy", {"numpy"}),
    ],
)
def test_a_package_imports_nothing_before_a_name_is_used(program: str, allowed: set[str]) -> None:
    assert not imported(program) & ((HEAVY | ARROW | NUMPY) - allowed)


@pytest.mark.parametrize("name", PACKAGES, ids=lambda name: f"privrl{name}")
def test_public_names_are_those_of_their_modules(name: str) -> None:
    package = importlib.import_module(f"privrl{name}")
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, public) is not None for public in package.__all__)
    submodules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not submodules & set(package.__all__)  # importing the submodule would replace the name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


def test_submodules_are_found_as_attributes() -> None:
    assert "jax" not in imported("import privrl; privrl.data.schema; privrl.studies; privrl.writing")


WITHOUT_TABLES = """
import sys
for name in ("matplotlib", "pyarrow", "pandas"):
    sys.modules[name] = None  # importing it is an error
from privrl.cli import main
for command in ("check", "init", "check"):
    assert main(["serve", command, "study.toml"]) == 0, command
from pathlib import Path
from privrl.service.study_file import read_study_file
from service.serving import serving
with serving(read_study_file(Path("study.toml"))) as service:
    ticket = service.ask("POST", "tickets", {"user": 1}).json["ticket"]
    assert service.ask("POST", "episodes", {"ticket": ticket, "steps": []}).status == 204
    assert service.ask("GET", "certificate").status == 200
for name in ("matplotlib", "pyarrow", "pandas"):
    del sys.modules[name]
"""


def test_a_study_is_served_without_plots_and_parquet(tmp_path: Path) -> None:
    """As in a container, whose packages (`requirements-serve.txt`) have neither."""
    from service.serving import CENTRAL

    (tmp_path / "study.toml").write_text(CENTRAL.replace("STORE", "study.db"))
    found = imported(WITHOUT_TABLES, cwd=tmp_path, PYTHONPATH=str(Path(__file__).parent))
    assert not {"matplotlib", "pyarrow"} & found


ONES = "import jax.numpy as jnp; assert jnp.ones(1).dtype == 'float64', jnp.ones(1).dtype"


@pytest.mark.parametrize(
    "program",
    [
        "import privrl.mdp.types",
        "import jax\nimport privrl.cli",
        "import jax.numpy\njax.config.update('jax_enable_x64', False)\nfrom privrl.data.schema import columns",
        "from privrl import writing",
        "import privrl.executors.processes",
    ],
)
def test_floats_have_64_bits_whichever_module_comes_first(program: str) -> None:
    imported(f"{program}\n{ONES}", JAX_ENABLE_X64="0")


def test_processes_that_are_started_have_64_bits_too(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import multiprocessing
        import privrl

        def work(_):
            {ONES}
            return True

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.map(work, [1]) == [True]
        """
    )
    (tmp_path / "main.py").write_text(program.replace("import privrl\n", "import jax\nimport privrl\n", 1))
    done = subprocess.run([sys.executable, str(tmp_path / "main.py")], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr


def test_nothing_else_decides_how_many_bits_floats_have() -> None:
    """One place, which runs before every other module of the package."""
    root = Path(privrl.__file__).parent
    found = [str(path.relative_to(root)) for path in root.rglob("*.py") if "enable_x64" in path.read_text().lower()]
    assert found == ["__init__.py"]
    assert "jax" not in {name.split(".")[0] for name in imported("import privrl.lazy")}
