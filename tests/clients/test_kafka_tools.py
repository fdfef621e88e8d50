"""The page about Kafka's own command-line tools: each of its commands runs, in their order, and does what it says."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench import maven

from headwater.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "kafka-tools.md"
SOURCE = Path(__file__).parent / "java_tools" / "EveryTool.java"
FAILS = "fails"
"""What the page says of a block whose commands do."""
WRONG = re.compile(r"Exception|^\s+at \S+\(|does not support|^Error|^WARNING|failed|timed out", re.MULTILINE)
"""What tools print that go wrong and end with 0 all the same."""
DEFAULT_ADDRESS = "localhost:9092"
OTHER_BROKER = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
RUN_TIMEOUT_S = 600
PARTED = "\x1f"
ANYTHING = "…"

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


def read_page(page: str) -> Iterator[Command]:
    """Lines of the page's blocks. What a block prints that follows is that of its last command."""
    blocks = re.findall(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for (language, told, text), following in zip(blocks, [*blocks[1:], ("", "", "")], strict=True):
        lines = text.replace("\\\n", " ").splitlines() if language == "sh" else []
        expected = tuple(following[2].splitlines()) if following[0] == "text" else ()
        for line in lines:
            yield read_command(line, told == FAILS, expected if line == lines[-1] else ())


def read_command(line: str, is_refused: bool, expected: tuple[str, ...]) -> Command:
    before, piped, after = line.partition(" | ")
    words = shlex.split(after if piped else before)
    stdin = shlex.split(before)[1] if piped else ""
    return Command(line, words[0], tuple(words[1:]), stdin, is_refused, expected)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[Done]:
    """All of them have run, in one JVM: a tool costs a second or two of computing to start."""
    commands = list(read_page(PAGE.read_text()))
    folder = tmp_path_factory.mktemp("tools")
    if OTHER_BROKER:
        return run_all(commands, OTHER_BROKER, folder)
    with Broker(subprocess=True) as broker:
        return run_all(commands, broker.bootstrap, folder)


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


def test_the_page_has_an_example_of_every_tool(done: list[Done]) -> None:
    named = set(re.findall(r"`(kafka-[a-z0-9-]+)`", PAGE.read_text().split("\n## ")[0]))
    of_files = {"kafka-dump-log", "kafka-storage", "kafka-metadata-shell"}
    assert named == {tool.removesuffix(".sh") for tool in CLASSES} | of_files
    assert {one.command.tool for one in done} == set(CLASSES)


def test_what_works_ends_well(done: list[Done]) -> None:
    wrong = [one for one in done if not one.command.is_refused and (one.status != 0 or WRONG.search(one.printed))]
    assert not wrong, "\n\n".join(one.shown() for one in wrong)


def test_what_does_not_work_fails(done: list[Done]) -> None:
    assert [one.command.text for one in done if one.command.is_refused and one.status == 0] == []


def test_each_prints_what_the_page_says(done: list[Done]) -> None:
    assert sum(bool(one.command.expected) for one in done) > 30
    for one in done:
        printed = [plain(line) for line in one.printed.splitlines()]
        for line in one.command.expected:
            pattern = re.compile(".*".join(re.escape(part) for part in plain(line).split(ANYTHING)))
            assert any(map(pattern.fullmatch, printed)), f"{line}\n\n{one.shown()}"


def plain(line: str) -> str:
    """Columns are as wide as what stands in them, which is not always the same."""
    return " ".join(line.split())
