"""What travels to the executors of a cluster."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.pipelines.run.shipping import modules_beside, own_packages, package_archive
from headwater.pipelines.spec.check import load
from headwater.testing import Broker

PIPELINE = """
name = "shipped"
[source.orders]
kind = "topic"
topic = "orders"
from = "earliest"
[step.seen]
kind = "python"
function = "{module}:seen"
inputs = ["orders"]
[sink.show]
kind = "console"
input = "seen"
"""
SEEN = """
def where(value):
    import headwater
    return headwater.__file__
def seen(frame):
    from pyspark.sql import functions as f
    return frame.select(f.udf(where)("value").alias("where"))
"""


def test_modules_beside_the_file_are_shipped_and_installed_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(SEEN)
    (tmp_path / "parcel" / "deep").mkdir(parents=True)
    (tmp_path / "parcel" / "__init__.py").write_text("")
    (tmp_path / "parcel" / "deep" / "__init__.py").write_text(SEEN)
    file = tmp_path / "shop.toml"
    found = {}
    for module in ("beside", "parcel.deep", "json"):
        file.write_text(PIPELINE.format(module=module))
        found[module] = modules_beside(load(file).pipeline)
    assert found == {"beside": [tmp_path / "beside.py"], "parcel.deep": [tmp_path / "parcel"], "json": []}


def test_a_pipeline_in_python_ships_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "shipped_module.py"
    file.write_text(
        "from headwater.pipelines.declare import sink, source\n"
        "source('a', kind='topic', topic='a')\nsink('s', kind='console', input='a')\n"
    )
    assert modules_beside(load(file).pipeline) == [file]
    del sys.modules["shipped_module"]


def test_headwater_runs_from_what_is_shipped(tmp_path: Path) -> None:
    import zipfile

    for package in own_packages():
        with zipfile.ZipFile(package_archive(package, tmp_path)) as archive:
            archive.extractall(tmp_path / "files" / package.name)
    look = (
        "import headwater, pyspark_headwater\n"
        "from headwater.wire.schema import request_schema\n"
        "assert request_schema(3, 12).fields\nprint(headwater.__file__)\n"
    )
    said = bare_python(tmp_path / "files", "-c", look)
    assert said.strip() == str(tmp_path / "files" / "headwater" / "__init__.py")


def bare_python(modules: Path, *arguments: str) -> str:
    """What a Python says that has the libraries, but no Headwater beside what is in a directory."""
    path = os.pathsep.join((str(modules), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    ).stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_cluster_whose_executors_have_no_headwater_runs_the_same_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.pipelines.standalone import standalone_cluster

    (tmp_path / "beside.py").write_text(SEEN)
    (tmp_path / "shop.toml").write_text(PIPELINE.format(module="beside"))
    python = tmp_path / "bare-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    settings = {
        "spark.executor.memory": "512m",
        "spark.pyspark.python": str(python),
        "spark.executorEnv.PYTHONPATH": sysconfig.get_path("purelib"),
    }
    environment = {**os.environ, "HEADWATER_CACHE": str(tmp_path), "HEADWATER_CLASS_CACHE": "off"}
    with Broker() as broker, standalone_cluster(tmp_path, workers=2) as master:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 4)])["orders"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(4):
            producer.produce("orders", value=b"one", partition=partition)
        assert producer.flush(60) == 0
        command = [sys.executable, "-m", "headwater.cli.main", "pipeline", "run", str(tmp_path / "shop.toml"), "--once"]
        command += ["--master", master, "--bootstrap", broker.bootstrap]
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    places = [json.loads(row)["where"] for row in done.stdout.splitlines()]
    assert len(places) == 4
    assert all(place.startswith(str(tmp_path / "work-")) for place in places)
