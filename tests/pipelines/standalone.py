"""A Spark cluster of its own on loopback: a standalone master and workers, each a JVM, gone at the end."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headwater.pipelines.jvm.gateway import class_path, jvm_options, spark_home
from headwater.pipelines.jvm.java import find_java, home_for_spark
from headwater.transport.ports import free_port
from tests.support.eventually import eventually

START_TIMEOUT_S = 90.0
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


@contextmanager
def standalone_cluster(directory: Path, workers: int) -> Iterator[str]:
    """The master's URL, once it listens. Workers keep what they are sent below the directory."""
    with ExitStack() as stack:
        port = free_port()
        stack.enter_context(_jvm(directory / "master.log", MASTER, "--port", str(port)))
        _wait_for(port, directory / "master.log")
        url = f"spark://127.0.0.1:{port}"
        for number in range(workers):
            sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"))
            stack.enter_context(_jvm(directory / f"worker-{number}.log", WORKER, *sizes, url))
        yield url


@contextmanager
def _jvm(log: Path, main: str, *arguments: str) -> Iterator[None]:
    java, home = find_java(), spark_home()
    command = [str(java.executable), *jvm_options("512m"), "-cp", os.pathsep.join(class_path(home)), main]
    command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "JAVA_HOME": str(home_for_spark(java)),
    }
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            yield
        finally:
            process.terminate()


def _wait_for(port: int, log: Path) -> None:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    eventually(answers, log.read_text, patience_s=START_TIMEOUT_S)
