"""Who is compared: Headwater's data source and Spark's own Kafka connector, each as one would write it down, and once
more with other settings. All of them read and write the same broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from bench import maven

OURS, ONCE, THEIRS, TUNED = "headwater", "headwater exactly once", "kafka", "kafka tuned"


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    format: str
    reading: Mapping[str, str] = field(default_factory=dict)
    """options beside the broker and the topic"""
    writing: Mapping[str, str] = field(default_factory=dict)
    needs_jars: bool = False


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(OURS, "headwater", writing={"exactlyOnce": "false"}),
        Contender(ONCE, "headwater"),
        Contender(THEIRS, "kafka", needs_jars=True),
        Contender(
            TUNED,
            "kafka",
            # What ours has by default: fetches of 4 MiB, batches of 512 KiB; and larger portions inside of the client.
            reading={"kafka.max.partition.fetch.bytes": str(4 << 20), "kafka.max.poll.records": "5000"},
            writing={"kafka.batch.size": str(512 << 10), "kafka.linger.ms": "20"},
            needs_jars=True,
        ),
    )
}

READERS = (OURS, THEIRS, TUNED)
WRITERS = (OURS, ONCE, THEIRS, TUNED)
COPIERS = (OURS, ONCE, THEIRS)
PROMISES = {OURS: "at least once", ONCE: "exactly once", THEIRS: "at least once", TUNED: "at least once"}


def connector_jars() -> list[Path]:
    """Of the connector and what it needs beside the jars that PySpark has. Raises maven.JarsUnavailable."""
    import pyspark

    there = {_artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    resolved = Path(maven.class_path("spark-kafka", maven.SPARK_CONNECTOR)).parent
    return sorted(jar for jar in resolved.glob("*.jar") if _artifact(jar) not in there)


def versions() -> dict[str, object]:
    return {"pyspark": version("pyspark"), "connector": list(maven.SPARK_CONNECTOR)}


def _artifact(jar: Path) -> str:
    """`kafka-clients` of kafka-clients-3.9.2.jar."""
    words = jar.stem.split("-")
    return "-".join(words[: next((at for at, word in enumerate(words) if at and word[:1].isdigit()), len(words))])
