"""The examples for clusters are well formed, and are what the executors ask for."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from executors.cluster import SETTINGS

from privrl.cli.main import root

yaml = pytest.importorskip("yaml")
CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"


def options(arguments: list[str]) -> set[str]:
    return {argument.split("=")[0] for argument in arguments if argument.startswith("--")}


def known_to_fit() -> set[str]:
    return {option for parameter in root(loaded=True).commands["fit"].params for option in parameter.opts}


def test_the_slurm_script_is_bash_with_known_settings() -> None:
    script = CLUSTER / "slurm.sh"
    text = script.read_text()
    subprocess.run(["bash", "-n", str(script)], check=True)
    settings = re.findall(r"^#SBATCH --([a-z-]+)=\S+$", text, flags=re.MULTILINE)
    assert len(settings) == text.count("#SBATCH") and "ntasks" in settings
    exported = dict(re.findall(r"^export (\w+)=(\S+)$", text, flags=re.MULTILINE))
    assert exported.items() >= SETTINGS.items()
    joined = re.sub(r"\\\n\s*", " ", text)
    [fit] = [shlex.split(line) for line in joined.splitlines() if line.startswith("privrl fit")]
    assert options(fit) <= known_to_fit()


def test_the_kubernetes_objects_fit_together() -> None:
    found = list(yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text()))
    assert all({"apiVersion", "kind", "metadata"} <= one.keys() for one in found)
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
    config = by_name["ConfigMap", "privrl-dask"]["data"]
    assert all(isinstance(value, str) for value in config.values()) and config.items() >= SETTINGS.items()
    for kind, name in (("Deployment", "scheduler"), ("Deployment", "workers"), ("Job", "fit")):
        pod = by_name[kind, name]["spec"]["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert container["envFrom"] == [{"configMapRef": {"name": "privrl-dask"}}]
    for name in ("scheduler", "workers"):
        spec = by_name["Deployment", name]["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    selector = by_name["Service", "scheduler"]["spec"]["selector"]
    assert selector == by_name["Deployment", "scheduler"]["spec"]["template"]["metadata"]["labels"]
    command = by_name["Job", "fit"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert command[:2] == ["privrl", "fit"] and options(command) <= known_to_fit()
