"""Command lines of Kafka's tools, as the documentation has them: read, run in one JVM, and what they printed."""

import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench import maven

SOURCE = Path(__file__).parent / "java_tools" / "EveryTool.java"
DEFAULT_ADDRESS = "localhost:9092"
RUN_TIMEOUT_S = 600
PARTED = "\x1f"

CLASSES = {
    "kafka-acls.sh": "AclCommand",
    "kafka-broker-api-versions.sh": "BrokerApiVersionsCommand",
    "kafka-client-metrics.sh": "ClientMetricsCommand",
    "kafka-cluster.sh": "ClusterTool",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "ConsoleProducer",
    "kafka-console-share-consumer.sh": "consumer.ConsoleShareConsumer",
    "kafka-consumer-groups.sh": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test.sh": "ConsumerPerformance",
    "kafka-delegation-tokens.sh": "DelegationTokenCommand",
    "kafka-delete-records.sh": "DeleteRecordsCommand",
    "kafka-e2e-latency.sh": "EndToEndLatency",
    "kafka-features.sh": "FeatureCommand",
    "kafka-get-offsets.sh": "GetOffsetShell",
    "kafka-groups.sh": "GroupsCommand",
    "kafka-leader-election.sh": "LeaderElectionCommand",
    "kafka-log-dirs.sh": "LogDirsCommand",
    "kafka-metadata-quorum.sh": "MetadataQuorumCommand",
    "kafka-producer-perf-test.sh": "ProducerPerformance",
    "kafka-reassign-partitions.sh": "reassign.ReassignPartitionsCommand",
    "kafka-share-consumer-perf-test.sh": "ShareConsumerPerformance",
    "kafka-share-groups.sh": "consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset.sh": "StreamsResetter",
    "kafka-streams-groups.sh": "streams.StreamsGroupCommand",
    "kafka-topics.sh": "TopicCommand",
    "kafka-transactions.sh": "TransactionsCommand",
    "kafka-verifiable-consumer.sh": "VerifiableConsumer",
    "kafka-verifiable-producer.sh": "VerifiableProducer",
    "kafka-verifiable-share-consumer.sh": "VerifiableShareConsumer",
}
"""What the scripts in Kafka's `bin` start, in org.apache.kafka.tools unless it says otherwise."""


@dataclass(frozen=True)
class Command:
    text: str
    tool: str
    arguments: tuple[str, ...]
    stdin: str
    is_refused: bool
    """The page says that it fails."""
    expected: tuple[str, ...]
    """Lines that it prints, among others."""


@dataclass(frozen=True)
class Done:
    command: Command
    status: int
    printed: str

    def shown(self) -> str:
        return f"{self.command.text}\n-> {self.status}\n{self.printed[:2000]}"


def read_command(line: str, is_refused: bool, expected: tuple[str, ...]) -> Command:
    before, piped, after = line.partition(" | ")
    words = shlex.split(after if piped else before)
    stdin = shlex.split(before)[1] if piped else ""
    return Command(line, words[0], tuple(words[1:]), stdin, is_refused, expected)


def run_all(wanted: list[Command], bootstrap: str, folder: Path) -> list[Done]:
    if shutil.which("javac") is None:
        pytest.skip("`javac` is not installed (apt-get install default-jdk-headless)")
    try:
        jars = [maven.class_path("tools", maven.KAFKA_TOOLS), maven.class_path("broker", maven.KAFKA_BROKER)]
    except maven.JarsUnavailable as reason:
        pytest.skip(f"Kafka's tools are not here: {reason}")
    lines, ran = [], []
    for command in wanted:
        if command.tool == "echo":
            text, _, name = command.arguments
            (folder / name).write_text(text)
        else:
            ran.append(command)
            own = CLASSES[command.tool]
            name = own if own.startswith("kafka.") else f"org.apache.kafka.tools.{own}"
            arguments = [argument.replace(DEFAULT_ADDRESS, bootstrap) for argument in command.arguments]
            lines.append(PARTED.join([name, command.stdin, *arguments]))
    (folder / "commands").write_text("\n".join(lines) + "\n")
    java = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-cp",
        ":".join(jars),
        str(SOURCE),
        str(folder),
    ]
    subprocess.run(java, cwd=folder, capture_output=True, timeout=RUN_TIMEOUT_S, check=True)
    done = []
    for number, command in enumerate(ran):
        status, _, printed = (folder / str(number)).read_text().partition("\n")
        done.append(Done(command, int(status), printed))
    return done
