"""`headwater group`, against a real broker."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from confluent_kafka import Consumer

from headwater.broker.metrics.group_health import health_page
from headwater.testing import Broker
from headwater.transport.ports import free_port


@contextlib.contextmanager
def member(bootstrap: str, group: str, topic: str, **more: str) -> Iterator[Consumer]:
    """A running member that owns its partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **more})
    consumer.subscribe([topic])
    try:
        for _ in range(100):
            consumer.poll(0.1)
            if consumer.assignment():
                break
        assert consumer.assignment()
        yield consumer
    finally:
        consumer.close()


def test_a_group_shows_how_far_it_is_and_what_it_lacks(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name, "--partitions", "2")
    cli.ok("produce", name, "--partition", "0", *"abc")
    cli.ok("consume", name, "--group", name, "--exit-at-end")
    cli.ok("produce", name, "--partition", "0", *"de")
    described = cli.json("group", "describe", name)
    assert described["state"] == "empty"
    (progress,) = [row for row in described["partitions"] if row["partition"] == 0]
    assert (progress["committed"], progress["end_offset"], progress["lag"], progress["member"]) == (3, 5, 2, None)
    assert "lag 2" in cli.ok("group", "describe", name).splitlines()[0]
    assert {"group": name, "state": "empty"}.items() <= next(
        row for row in cli.json("group", "list") if row["group"] == name
    ).items()


def test_running_members_are_shown_with_what_they_own(cli: Any, name: str, bootstrap: str) -> None:
    cli.ok("topic", "create", name, "--partitions", "2")
    with member(bootstrap, name, name):
        described = cli.json("group", "describe", name)
        assert described["state"] == "stable"
        assert [owner["partitions"] for owner in described["members"]] == [2]
        assert all(row["member"] for row in described["partitions"])
        refused = cli("group", "delete", name, "--yes")
        assert refused.exit_code == 1 and "Stop them first." in refused.stderr
        moved = cli("group", "reset-offsets", name, "--topic", name, "--to", "end")
        assert moved.exit_code == 1 and "Stop them first." in moved.stderr


def test_a_group_is_moved_by_word_offset_count_and_time(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, *"abcde")
    cli.ok("consume", name, "--group", name, "--exit-at-end")
    for to, offset in (("beginning", 0), ("2", 2), ("-1", 4), ("end", 5), ("1h", 0), ("99", 5), ("2099-01-01", 5)):
        (row,) = cli.json("group", "reset-offsets", name, "--to", to)
        assert row["to"] == offset, to
    cli.ok("group", "reset-offsets", name, "--to", "3")
    assert cli.ok("consume", name, "--group", name, "--exit-at-end") == "d\ne\n"


def test_a_dry_run_changes_nothing(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, *"abc")
    cli.ok("consume", name, "--group", name, "--exit-at-end")
    (row,) = cli.json("group", "reset-offsets", name, "--topic", name, "--to", "beginning", "--dry-run")
    assert (row["from"], row["to"]) == (3, 0)
    assert cli.json("group", "describe", name)["partitions"][0]["committed"] == 3


def test_a_group_can_be_placed_before_its_first_member_comes(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, *"abc")
    cli.ok("group", "reset-offsets", name, "--topic", name, "--to", "1")
    assert cli.ok("consume", name, "--group", name, "--exit-at-end") == "b\nc\n"


def test_a_deleted_group_is_gone(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, "a")
    cli.ok("consume", name, "--group", name, "--exit-at-end")
    assert cli("group", "delete", name).exit_code == 2
    assert cli.ok("group", "delete", name, "--yes") == f"Deleted group {name}.\n"
    gone = cli("group", "describe", name)
    assert gone.exit_code == 1 and gone.stderr.startswith(f"headwater: Group {name} does not exist.")
    assert cli("group", "delete", name, "--yes").exit_code == 1


def test_health_says_who_left_and_why(cli_at: Any, name: str) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    with Broker(metrics=metrics) as broker:
        cli = cli_at(broker.bootstrap)
        cli.ok("topic", "create", name)
        with member(broker.bootstrap, name, name):
            assert cli.json("group", "health", name, "--metrics", metrics) == []
        (left,) = cli.json("group", "health", name, "--metrics", metrics)
        assert (left["reason"], left["client"]) == ("left", "rdkafka")
        assert "left" in cli.ok("group", "health", name, "--metrics", metrics)
        assert cli.json("group", "health", "other", "--metrics", metrics) == []
    refused = cli("group", "health", name, "--metrics", metrics)
    assert refused.exit_code == 1 and "--metrics" in refused.stderr


def test_a_broker_that_does_not_coordinate_a_group_is_not_believed_that_nobody_left(cli: Any) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(health_page([], "g", is_known=False))

        def log_message(self, *_: Any) -> None:
            """Not to stderr."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        told = cli("group", "health", "g", "--metrics", f"127.0.0.1:{server.server_port}")
        serving.join()
    assert told.exit_code == 1 and "does not coordinate g" in told.stderr


def test_a_group_of_the_new_protocol_is_shown_like_any_other(cli: Any, name: str, bootstrap: str) -> None:
    cli.ok("topic", "create", name, "--partitions", "2")
    with member(bootstrap, name, name, **{"group.protocol": "consumer"}):
        described = cli.json("group", "describe", name)
        assert described["state"] == "stable"
        assert [owner["partitions"] for owner in described["members"]] == [2]
        assert {"group": name, "state": "stable", "type": "consumer"} in cli.json("group", "list")
