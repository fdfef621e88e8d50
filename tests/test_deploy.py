"""The files under deploy/ say what the program understands."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from headwater.broker.settings.authorization import Authorization
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.setting import Address
from headwater.cli.client_settings import ClientKind
from headwater.cli.main import app
from headwater.cli.security.secured_directory import SecuredPlan, client_file, write
from headwater.model.cluster import Role
from headwater.transport.ports import free_ports
from tests.support.eventually import eventually

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
    namespace = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())["namespace"]
    for port in service["ports"]:
        assert f"POD_NAME.{stateful['serviceName']}.{namespace}.svc:{port['port']}" in pod_settings()
        assert {"name": port["name"], "containerPort": port["port"]} in container["ports"]
    named = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        (check,) = [container[probe][kind] for kind in ("tcpSocket", "httpGet") if kind in container[probe]]
        assert check["port"] in named
    claims = {claim["metadata"]["name"] for claim in stateful["volumeClaimTemplates"]}
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in claims} == {
        "data": "/var/lib/headwater"
    }


def pod_settings() -> str:
    text: str = manifests()["ConfigMap", "headwater-settings"]["data"]["headwater.toml"]
    return text


def scripts() -> tuple[str, str]:
    """What a pod runs: first, and then."""
    spec = manifests()["StatefulSet", "headwater"]["spec"]["template"]["spec"]
    (first,), (then,) = spec["initContainers"], spec["containers"]
    return first["command"][-1], then["command"][-1]


def brokers(admin: AdminClient) -> list[Any]:
    try:
        return list(admin.list_topics(timeout=5).brokers.values())
    except KafkaException:
        return []


def test_a_pod_of_the_statefulset_is_a_secured_node(tmp_path: Path) -> None:
    """Its scripts run here, with other paths; etcd is a file, and ports are free ones."""
    secure = tmp_path / "secure"
    hosts = ("headwater.headwater.svc", "*.headwater-nodes.headwater.svc")
    write(SecuredPlan(directory=secure, hosts=hosts, listen=Address("0.0.0.0", 9093), users=["admin"]))
    etc, data, scratch = tmp_path / "etc", tmp_path / "data", tmp_path / "scratch"
    for path in (etc / "tls", etc / "users", etc / "settings", data, scratch):
        path.mkdir(parents=True)
    for secret, file in (("ca.crt", "ca.pem"), ("tls.crt", "node.pem"), ("tls.key", "node.key")):
        shutil.copy(secure / "tls" / file, etc / "tls" / secret)
    for file in ("bootstrap-users.json", "http-token"):
        shutil.copy(secure / file, etc / "users" / file)
    kafka, peers = free_ports(2)
    settings = re.sub(r'"etcds://[^"]*"', f'"sqlite:{data}/metadata.db"', pod_settings())
    settings = settings.replace('"0.0.0.0:9093"', f'"127.0.0.1:{kafka}"')
    settings = settings.replace('"0.0.0.0:9192"', f'"127.0.0.1:{peers}"').replace(
        '"0.0.0.0:9644"', '"off"\nhttp = "off"'
    )

    def here(text: str) -> str:
        places = {"/etc/headwater": etc, "/var/lib/headwater": data, "/tmp/headwater.toml": scratch / "headwater.toml"}
        for place, path in places.items():
            text = text.replace(place, str(path))
        return text

    (etc / "settings/headwater.toml").write_text(here(settings))
    first, then = map(here, scripts())
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "POD_NAME": "headwater-12"}
    subprocess.run(["sh", "-ec", first], env=environment, check=True)
    used = set(re.findall(r"--[a-z][a-z-]+", then))
    assert used == {"--config", "--log-json"} <= serve_options()
    node = subprocess.Popen(["sh", "-ec", then], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        login = json.loads(client_file(secure, "admin", ClientKind.LIBRDKAFKA).read_text())
        admin = AdminClient(login | {"bootstrap.servers": f"localhost:{kafka}"})
        (broker,) = eventually(lambda: brokers(admin), "the node answers")
        assert (broker.id, broker.host) == (12, "headwater-12.headwater-nodes.headwater.svc")
        assert not (data / "bootstrap-users.json").exists(), "the first user was taken in"
    finally:
        node.terminate()
        _, log = node.communicate(timeout=60)
    assert node.returncode == 0, log.decode()


def test_the_example_of_a_nodes_settings_is_read() -> None:
    config = BrokerConfig.load(DEPLOY / "headwater.toml")
    assert config.is_clustered
    assert config.authorizes is Authorization.ON
    assert not config.insecure
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
