"""Kafka's own tools where bindings are in force: an administrator grants with `kafka-acls`, and a user with few rights
is told what is refused."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.kafka_commands import DEFAULT_ADDRESS, Command, Done, run_all
from tests.support.guarded import PASSWORD, guarded_broker

ADMIN, ALICE = "admin", "alice"
SECRET = "what signs"
WRITES_ORDERS = "--add --allow-principal User:alice --operation Write --topic orders"
READS_GROUPS = (
    "--add --allow-principal User:alice --consumer --topic in --resource-pattern-type prefixed --group packers"
)
READS_ORDERS = "--topic orders --partition 0 --offset earliest --timeout-ms 20000"
STEPS = (
    (ADMIN, "kafka-topics.sh", "--create --topic orders --partitions 2"),
    (ADMIN, "kafka-topics.sh", "--create --topic payroll"),
    (ADMIN, "kafka-configs.sh", f"--alter --group packers --add-config headwater.push.secret='{SECRET}'"),
    (ALICE, "kafka-topics.sh", "--list"),
    (ALICE, "kafka-topics.sh", "--describe --topic orders"),
    (ALICE, "kafka-acls.sh", "--list"),
    (ADMIN, "kafka-acls.sh", WRITES_ORDERS),
    (ADMIN, "kafka-acls.sh", READS_GROUPS),
    (ADMIN, "kafka-acls.sh", "--list --topic orders"),
    (ALICE, "kafka-topics.sh", "--list"),
    (ALICE, "kafka-get-offsets.sh", "--topic payroll"),
    (ALICE, "kafka-console-producer.sh", "--topic orders"),
    (ALICE, "kafka-console-producer.sh", "--topic payroll"),
    (ALICE, "kafka-console-consumer.sh", READS_ORDERS),
    (ADMIN, "kafka-get-offsets.sh", "--topic orders"),
    (ADMIN, "kafka-get-offsets.sh", "--topic payroll"),
    (ALICE, "kafka-topics.sh", "--create --topic new"),
    (ALICE, "kafka-topics.sh", "--delete --topic orders"),
    (ALICE, "kafka-configs.sh", "--describe --topic orders"),
    (ALICE, "kafka-configs.sh", "--alter --topic orders --add-config retention.ms=1000"),
    (ADMIN, "kafka-acls.sh", "--add --allow-principal User:alice --operation AlterConfigs --topic orders"),
    (ALICE, "kafka-configs.sh", "--alter --topic orders --add-config retention.ms=1000"),
    (ALICE, "kafka-configs.sh", "--describe --topic orders"),
    (ALICE, "kafka-topics.sh", "--describe --topic orders"),
    (ALICE, "kafka-log-dirs.sh", "--describe"),
    (ADMIN, "kafka-configs.sh", "--describe --group packers"),
    (ADMIN, "kafka-acls.sh", "--remove --force --allow-principal User:alice --operation Write --topic orders"),
    (ADMIN, "kafka-acls.sh", "--list --principal User:alice --topic orders"),
)
"""Who runs what. They run in this order."""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Done]]:
    """Of every step, in one JVM."""
    folder = tmp_path_factory.mktemp("tools")
    for user in (ADMIN, ALICE):
        login = (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{PASSWORD}";'
        )
        (folder / f"{user}.properties").write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={login}\n"
        )
    with guarded_broker(tmp_path_factory.mktemp("guarded")) as guarded:
        host, port = guarded.address
        yield run_all([command(folder, *step) for step in STEPS], f"{host}:{port}", folder)


def command(folder: Path, user: str, tool: str, arguments: str) -> Command:
    login = ["--command-config", str(folder / f"{user}.properties")]
    words = ("--bootstrap-server", DEFAULT_ADDRESS, *login, *shlex.split(arguments))
    stdin = "a record\\n" if tool == "kafka-console-producer.sh" else ""
    return Command(f"{user}: {tool} {arguments}", tool, words, stdin, False, ())


def of(printed: list[Done], user: str, tool: str, arguments: str) -> list[Done]:
    found = [done for done in printed if done.command.text == f"{user}: {tool} {arguments}"]
    assert found, "every judged command was run"
    return found


def test_what_an_administrator_grants_is_listed_and_taken_back(printed: list[Done]) -> None:
    (listed,) = of(printed, ADMIN, "kafka-acls.sh", "--list --topic orders")
    assert listed.status == 0, listed.shown()
    assert "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)" in listed.printed
    (left,) = of(printed, ADMIN, "kafka-acls.sh", "--list --principal User:alice --topic orders")
    assert "operation=ALTER_CONFIGS" in left.printed and "operation=WRITE" not in left.printed


def test_a_user_sees_a_topic_once_it_may_be_written_and_its_description_with_its_settings(printed: list[Done]) -> None:
    before, after = of(printed, ALICE, "kafka-topics.sh", "--list")
    assert (before.printed.split(), after.printed.split()) == ([], ["orders"]), before.shown() + after.shown()
    before, after = of(printed, ALICE, "kafka-topics.sh", "--describe --topic orders")
    assert before.status != 0 and "PartitionCount" not in before.printed, before.shown()
    assert after.status == 0 and "PartitionCount: 2" in after.printed, after.shown()


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("kafka-acls.sh", "--list", "User:alice may not describe the cluster."),
        ("kafka-topics.sh", "--create --topic new", "User:alice may not create topic 'new'."),
        ("kafka-topics.sh", "--delete --topic orders", "User:alice may not delete topic 'orders'."),
        (
            "kafka-configs.sh",
            "--describe --topic orders",
            "User:alice may not describe the settings of topic 'orders'.",
        ),
        (
            "kafka-configs.sh",
            "--alter --topic orders --add-config retention.ms=1000",
            "User:alice may not alter the settings of topic 'orders'.",
        ),
        ("kafka-log-dirs.sh", "--describe", "ClusterAuthorizationException"),
    ],
)
def test_tools_say_what_is_refused(printed: list[Done], tool: str, arguments: str, told: str) -> None:
    refused, *_ = of(printed, ALICE, tool, arguments)
    assert refused.status != 0 and told in refused.printed, refused.shown()


def test_offsets_of_a_topic_that_may_not_be_described_are_not_told(printed: list[Done]) -> None:
    (asked,) = of(printed, ALICE, "kafka-get-offsets.sh", "--topic payroll")
    assert "payroll:" not in asked.printed, asked.shown()


def test_settings_are_altered_once_that_is_allowed(printed: list[Done]) -> None:
    _, altered = of(printed, ALICE, "kafka-configs.sh", "--alter --topic orders --add-config retention.ms=1000")
    assert altered.status == 0, altered.shown()
    _, described = of(printed, ALICE, "kafka-configs.sh", "--describe --topic orders")
    assert "retention.ms=1000" in described.printed, described.shown()


def test_a_secret_is_a_sensitive_value_without_text(printed: list[Done]) -> None:
    (described,) = of(printed, ADMIN, "kafka-configs.sh", "--describe --group packers")
    assert "headwater.push.secret=null sensitive=true" in described.printed, described.shown()
    assert not any(SECRET in done.printed for done in printed)


def test_javas_producer_writes_what_it_may_and_its_consumer_reads_nothing(printed: list[Done]) -> None:
    """They tell their log of refusals, which is not shown."""
    (orders,) = of(printed, ADMIN, "kafka-get-offsets.sh", "--topic orders")
    assert sum(int(line.rpartition(":")[2]) for line in orders.printed.split()) == 1, orders.shown()
    (payroll,) = of(printed, ADMIN, "kafka-get-offsets.sh", "--topic payroll")
    assert payroll.printed.split() == ["payroll:0:0"], payroll.shown()
    (reading,) = of(printed, ALICE, "kafka-console-consumer.sh", READS_ORDERS)
    assert "Processed a total of 0 messages" in reading.printed and "a record" not in reading.printed, reading.shown()
