"""The files under deploy/ say what the program understands."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from headwater.broker.settings.broker_config import BrokerConfig
from headwater.cli.main import app
from headwater.model.cluster import Role

DEPLOY = Path(__file__).parent.parent / "deploy"
MAX_EXPOSURE = 2.0
"""Of 10, as systemd-analyze counts what a service could do if it were taken over."""


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name; exactly those that the kustomization names."""
    folder = DEPLOY / "kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(p.name for p in folder.glob("*.yaml") if p.name != "kustomization.yaml")
    documents = [document for name in listed for document in yaml.safe_load_all((folder / name).read_text())]
    found = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(found) == len(documents)
    return found


def serve_options() -> set[str]:
    help_text = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).stdout
    return set(re.findall(r"--[a-z][a-z-]+", re.sub(r"\x1b\[[0-9;]*m", "", help_text)))


def test_the_nodes_of_the_statefulset_are_found_under_the_names_that_they_tell() -> None:
    found = manifests()
    stateful = found["StatefulSet", "headwater"]["spec"]
    service = found["Service", stateful["serviceName"]]["spec"]
    assert service["clusterIP"] == "None"
    labels = stateful["template"]["metadata"]["labels"]
    for selector in (
        stateful["selector"]["matchLabels"],
        service["selector"],
        found["Service", "headwater"]["spec"]["selector"],
        found["PodDisruptionBudget", "headwater"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    (container,) = stateful["template"]["spec"]["containers"]
    script = container["command"][-1]
    for port in service["ports"]:
        assert f".{stateful['serviceName']}.${{POD_NAMESPACE}}.svc:{port['port']}" in script
        assert {"name": port["name"], "containerPort": port["port"]} in container["ports"]
    named = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        (check,) = [container[probe][kind] for kind in ("tcpSocket", "httpGet") if kind in container[probe]]
        assert check["port"] in named
    claims = {claim["metadata"]["name"] for claim in stateful["volumeClaimTemplates"]}
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in claims} == {
        "data": "/var/lib/headwater"
    }


def test_the_statefulset_starts_the_program_with_options_that_it_has() -> None:
    script = manifests()["StatefulSet", "headwater"]["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    used = set(re.findall(r"--[a-z][a-z-]+", script))
    assert {"--node-id", "--metadata", "--peer-listen", "--peer-advertise"} <= used <= serve_options()
    # The shell makes the node's number of the pod's name.
    number = script.split("--node-id")[1].split("\\")[0].strip()
    done = subprocess.run(["sh", "-ec", f"POD_NAME=headwater-12; echo {number}"], capture_output=True, text=True)
    assert done.stdout == "12\n"


def test_the_example_of_a_nodes_settings_is_read() -> None:
    config = BrokerConfig.load(DEPLOY / "headwater.toml")
    assert config.is_clustered
    assert config.roles == tuple(Role)
    assert config.topic_defaults.overrides["min.insync.replicas"] == "2"


def test_the_unit_is_one_that_systemd_understands_and_gives_little_away(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = (DEPLOY / "headwater.service").read_text()
    command = re.search(r"^ExecStart=(\S+) serve (.*)$", unit, re.MULTILINE)
    assert command is not None
    assert set(re.findall(r"--[a-z][a-z-]+", command[2])) <= serve_options()
    installed = tmp_path / "headwater.service"
    installed.write_text(unit.replace(command[1], str(Path(sys.executable).parent / "headwater")))
    checked = subprocess.run(["systemd-analyze", "verify", str(installed)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(installed)], capture_output=True, text=True
    )
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", judged.stdout)
    assert exposure is not None, judged.stdout + judged.stderr
    assert float(exposure[1]) <= MAX_EXPOSURE
