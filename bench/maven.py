"""Jars of Maven Central, resolved by the ordinary `mvn` client into a folder that git ignores.

A set of jars has a name and a list of coordinates. It is fetched once; a stamp file that holds the
coordinates says that the folder is whole, so an interrupted download or a changed version is fetched again."""

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "maven"
RESOLVE_TIMEOUT_S = 600

KAFKA_VERSION = "4.3.0"
KAFKA_BROKER = (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", "org.slf4j:slf4j-nop:1.7.36")
KAFKA_TOOLS = (f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}", "org.slf4j:slf4j-nop:1.7.36")
KAFKA_CLIENT = (
    f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}",
    "org.slf4j:slf4j-nop:1.7.36",
    "com.fasterxml.jackson.core:jackson-databind:2.21.2",
)

SPARK_CONNECTOR_VERSION = "4.2.0"
"""The newest. There is none for Spark 4.3 yet; that of 4.2 runs in it."""
SPARK_CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_CONNECTOR_VERSION}",
    # Of this part, which serves logins by delegation token, not every version can be had everywhere; this one loads.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
)


class JarsUnavailable(Exception):
    """Java, Maven or the repository could not be used; the message says which and why."""


def class_path(name: str, coordinates: Sequence[str]) -> str:
    """The class path of the named set, fetched first when it is not here yet."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise JarsUnavailable(f"`{tool}` is not installed (apt-get install default-jdk-headless maven)")
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "resolved"
    expected = "\n".join(coordinates)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers ask at the same time
        if not stamp.exists() or stamp.read_text() != expected:
            _resolve(folder, coordinates)
            stamp.write_text(expected)
    return str(folder / "jars" / "*")


def _resolve(folder: Path, coordinates: Sequence[str]) -> None:
    jars = folder / "jars"
    shutil.rmtree(jars, ignore_errors=True)
    (folder / "pom.xml").write_text(_pom(coordinates))
    command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise JarsUnavailable(f"mvn could not resolve {', '.join(coordinates)}:\n{done.stdout[-2000:]}")


def _pom(coordinates: Sequence[str]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in (escape(coordinate).split(":") for coordinate in coordinates)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>headwater</groupId><artifactId>jars</artifactId><version>1</version>"
        # Managed, too: a version that is named here is not looked for in another one that some jar asks for.
        f"<dependencyManagement><dependencies>{dependencies}</dependencies></dependencyManagement>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
