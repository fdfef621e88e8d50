"""Kafka's tools on three nodes: a reassignment, throttled, looked at and cancelled, and settings of all brokers."""

import json
from collections.abc import Callable

import pytest

from tests.clients.judged import Client, Record
from tests.clients.kafka_commands import Done, read_command, run_all
from tests.clients.with_java import JavaClient

TOPIC = "moved"
RECORDS, RECORD_BYTES = 200, 10_000
"""At the rate below they need more than five minutes: the move is under way during the whole test."""
RATE = 5_000
REASSIGN = "kafka-reassign-partitions.sh --bootstrap-server localhost:9092"
BROKERS = "kafka-configs.sh --bootstrap-server localhost:9092 --entity-type brokers"
MOVE = "--reassignment-json-file moves.json"
COMMANDS = {
    "execute": f"{REASSIGN} --execute {MOVE} --throttle {RATE}",
    "verify": f"{REASSIGN} --verify {MOVE}",
    "list": f"{REASSIGN} --list",
    "throttled brokers": f"{BROKERS} --describe",
    "throttled topic": f"kafka-configs.sh --bootstrap-server localhost:9092 --entity-type topics --entity-name {TOPIC} "
    "--describe",
    "cancel": f"{REASSIGN} --cancel {MOVE}",
    "list again": f"{REASSIGN} --list",
    "brokers again": f"{BROKERS} --describe",
    "alter all": f"{BROKERS} --entity-default --alter --add-config num.partitions=5",
    "alter one": f"{BROKERS} --entity-name 2 --alter --add-config num.partitions=6",
    "describe one": f"{BROKERS} --entity-name 2 --describe",
    "describe another": f"{BROKERS} --entity-name 3 --describe --all",
}


@pytest.fixture(scope="module")
def done(
    cluster_bootstrap: str, open_client: Callable[[str, str], Client], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Done]:
    java = open_client("java", cluster_bootstrap)
    assert isinstance(java, JavaClient)
    java.create_topic(TOPIC, config={"segment.bytes": "100000", "retention.ms": "-1"})
    java.ask("reassign", topic=TOPIC, nodes=[1])
    while java.ask("reassignments", topic=TOPIC):
        pass
    java.produce(TOPIC, [Record(bytes(RECORD_BYTES)) for _ in range(RECORDS)])
    moves = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [3, 2]}]}
    wanted = [
        read_command(line, False, ()) for line in (f"echo '{json.dumps(moves)}' > moves.json", *COMMANDS.values())
    ]
    ran = run_all(wanted, cluster_bootstrap, tmp_path_factory.mktemp("tools"))
    return dict(zip(COMMANDS, ran, strict=True))


def test_every_command_ends_well(done: dict[str, Done]) -> None:
    wrong = [one.shown() for one in done.values() if one.status != 0 or "Exception" in one.printed]
    assert not wrong, "\n\n".join(wrong)


def test_a_throttled_move_is_under_way_until_it_is_cancelled_and_so_are_its_throttles(done: dict[str, Done]) -> None:
    assert f"throttle limit was set to {RATE} B/s" in done["execute"].printed
    assert "still in progress" in done["verify"].printed
    assert "adding: 3,2" in done["list"].printed
    brokers = done["throttled brokers"].printed
    for side in ("leader", "follower"):
        assert brokers.count(f"  {side}.replication.throttled.rate={RATE} ") == 3
    assert "  leader.replication.throttled.replicas=0:1 " in done["throttled topic"].printed
    assert "  follower.replication.throttled.replicas=0:2,0:3 " in done["throttled topic"].printed
    assert "Successfully cancelled partition reassignment for: moved-0" in done["cancel"].printed
    assert "No partition reassignments found" in done["list again"].printed
    assert "throttled" not in done["brokers again"].printed


def test_what_is_altered_for_all_brokers_holds_on_those_that_say_nothing_else(done: dict[str, Done]) -> None:
    assert "num.partitions=6 " in done["describe one"].printed
    assert (
        "num.partitions=5 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG" in done["describe another"].printed
    )
    assert "process.roles=broker,store,controller " in done["describe another"].printed
    assert "broker.rack=null " in done["describe another"].printed
