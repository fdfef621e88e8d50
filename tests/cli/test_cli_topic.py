"""`headwater topic`, against a real broker."""

from typing import Any


def test_a_created_topic_is_listed_and_described(cli: Any, name: str) -> None:
    assert (
        cli.ok("topic", "create", name, "--partitions", "3", "--config", "retention.ms=3600000")
        == f"Created topic {name}.\n"
    )
    (listed,) = [row for row in cli.json("topic", "list") if row["topic"] == name]
    assert (listed["partitions"], listed["records"]) == (3, 0)
    described = cli.json("topic", "describe", name)
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert described["config"] == {"retention.ms": "3600000"}
    table = cli.ok("topic", "describe", name)
    assert table.startswith(f"Topic {name}: 3 partitions\n")
    assert "retention.ms  3600000" in table


def test_describing_shows_offsets_and_the_size_on_disk(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, "one", "two")
    (partition,) = cli.json("topic", "describe", name)["partitions"]
    assert (partition["start_offset"], partition["end_offset"]) == (0, 2)
    assert partition["size_bytes"] > 0
    assert partition["replicas"] == partition["in_sync"] == [partition["leader"]]


def test_all_settings_are_shown_on_request(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    assert cli.json("topic", "describe", name)["config"] == {}
    assert cli.json("topic", "describe", name, "--all")["config"]["cleanup.policy"] == "delete"


def test_settings_change_and_go_back_to_their_default(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("topic", "alter", name, "--config", "cleanup.policy=compact", "--config", "segment.bytes=1048576")
    assert cli.json("topic", "describe", name)["config"] == {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    cli.ok("topic", "alter", name, "--reset", "cleanup.policy")
    assert cli.json("topic", "describe", name)["config"] == {"segment.bytes": "1048576"}


def test_a_topic_gets_more_partitions_and_never_fewer(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("topic", "alter", name, "--partitions", "4")
    assert len(cli.json("topic", "describe", name)["partitions"]) == 4
    refused = cli("topic", "alter", name, "--partitions", "2")
    assert refused.exit_code == 1
    assert "INVALID_PARTITIONS" in refused.stderr


def test_creating_a_topic_twice_is_a_problem_unless_it_may_exist(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    again = cli("topic", "create", name)
    assert again.exit_code == 1
    assert again.stderr.startswith(f"headwater: Topic {name} exists already.")
    cli.ok("topic", "create", name, "--if-not-exists")


def test_a_bad_setting_is_refused_in_words(cli: Any, name: str) -> None:
    refused = cli("topic", "create", name, "--config", "retention.ms=soon")
    assert refused.exit_code == 1
    assert "retention.ms" in refused.stderr and "Traceback" not in refused.stderr
    assert cli("topic", "create", name, "--config", "nonsense").exit_code == 2


def test_trimming_removes_what_is_before_the_place(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, *"abcde")
    assert cli("topic", "trim", name, "--before", "3").exit_code == 2, "nobody confirmed"
    assert cli.ok("topic", "trim", name, "--before", "3", "--yes").split() == ["PARTITION", "START", "0", "3"]
    assert cli.ok("consume", name, "--exit-at-end") == "d\ne\n"
    cli.ok("topic", "trim", name, "--before", "end", "--yes")
    assert cli.ok("consume", name, "--exit-at-end") == ""


def test_deleting_asks_first_and_then_the_topic_is_gone(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name)
    unconfirmed = cli("topic", "delete", name)
    assert unconfirmed.exit_code == 2 and "--yes" in unconfirmed.stderr
    assert cli.ok("topic", "delete", name, "--yes") == f"Deleted topic {name}.\n"
    gone = cli("topic", "describe", name)
    assert gone.exit_code == 1
    assert gone.stderr.startswith(f"headwater: Topic {name} does not exist.")
    assert cli("topic", "delete", name, "--yes").exit_code == 1


def test_internal_topics_are_listed_on_request_only(cli: Any, name: str) -> None:
    cli.ok("produce", name, "x")
    cli.ok("consume", name, "--group", name, "--exit-at-end")
    assert not [row for row in cli.json("topic", "list") if row["topic"].startswith("__")]
    assert [row for row in cli.json("topic", "list", "--internal") if row["topic"].startswith("__")]


def test_without_a_broker_the_message_says_how_to_get_one(cli_at: Any, free_port: int) -> None:
    result = cli_at(f"127.0.0.1:{free_port}")("topic", "list")
    assert result.exit_code == 1
    assert result.stderr == (
        f"headwater: No broker answers at 127.0.0.1:{free_port}. "
        "Start one with `headwater serve`, or name another with --bootstrap.\n"
    )


def test_an_address_that_is_none_is_a_usage_mistake(cli: Any, bootstrap: str) -> None:
    for address in ("localhost", "host:", ":9092", "host:port"):
        assert cli("topic", "list", "--bootstrap", address).exit_code == 2
    cli.ok("topic", "list", "--bootstrap", f"127.0.0.1:1,{bootstrap}")
