"""`headwater produce` and `headwater consume`, against a real broker."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEADWATER = [sys.executable, "-m", "headwater.cli.main"]


def environment(bootstrap: str) -> dict[str, str]:
    return {**os.environ, "HEADWATER_BOOTSTRAP": bootstrap}


def test_what_is_produced_is_consumed(cli: Any, name: str) -> None:
    assert cli.ok("produce", name, "hello") == f"{name} partition 0 offset 0\n"
    cli.ok("produce", name, input="from stdin\nlast line without end")
    assert cli.ok("consume", name, "--exit-at-end") == "hello\nfrom stdin\nlast line without end\n"


def test_bytes_that_are_not_text_survive(cli: Any, name: str) -> None:
    cli.ok("produce", name, input=b"\xff\xfe\x00\n")
    assert cli("consume", name, "--exit-at-end").stdout_bytes == b"\xff\xfe\x00\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_carries_a_file_of_lines(cli: Any, name: str, tmp_path: Path, codec: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(5_000))
    (tmp_path / "lines.txt").write_text(lines)
    result = cli("produce", name, "--file", str(tmp_path / "lines.txt"), "--compression", codec)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"5000 records to {name}, ")
    assert cli.ok("consume", name, "--exit-at-end") == lines


def test_keys_headers_and_partitions(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name, "--partitions", "3")
    cli.ok("produce", name, "--key-separator", ":", "--partition", "2", "--header", "trace=7", input="k1:v1\nk2:v:2\n")
    assert (
        cli.ok("consume", name, "--exit-at-end", "--format", "%p %o %k=%v %h")
        == "2 0 k1=v1 trace=7\n2 1 k2=v:2 trace=7\n"
    )
    assert cli.ok("consume", name, "--exit-at-end", "--partition", "0") == ""
    assert cli("consume", name, "--exit-at-end", "--partition", "9").exit_code == 1


def test_an_empty_value_can_be_a_tombstone(cli: Any, name: str) -> None:
    cli.ok("produce", name, "--key", "k", "--empty-is-null", "")
    cli.ok("produce", name, "--key", "k", "")
    lines = cli.ok("consume", name, "--exit-at-end", "--json").splitlines()
    assert [json.loads(line)["value"] for line in lines] == [None, ""]


def test_produce_reports_for_machines(cli: Any, name: str) -> None:
    report = cli.json("produce", name, "a", "b", "c")
    assert (report["records"], report["failed"], report["last_offsets"]) == (3, 0, {"0": 2})


def test_a_record_that_is_refused_makes_the_command_fail(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name, "--config", "max.message.bytes=1000")
    refused = cli("produce", name, "x" * 5_000)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("headwater: 1 record not acknowledged.")
    assert "MSG_SIZE_TOO_LARGE" in refused.stderr


def test_a_line_without_its_key_separator_stops_the_command(cli: Any, name: str) -> None:
    refused = cli("produce", name, "--key-separator", ":", input="k:v\nnothing here\n")
    assert refused.exit_code == 1 and "nothing here" in refused.stderr
    assert cli.ok("consume", name, "--exit-at-end") == "v\n", "what came before it is there"


@pytest.mark.parametrize(
    "arguments",
    [("v", "--key", "a", "--key-separator", ":"), ("--key-separator", ""), ("v", "--header", "nonsense")],
)
def test_contradictions_are_usage_mistakes(cli: Any, name: str, arguments: tuple[str, ...]) -> None:
    assert cli("produce", name, *arguments, input="").exit_code == 2


@pytest.mark.parametrize(
    ("start", "seen"),
    [
        ("beginning", "abcde"),
        ("3", "de"),
        ("5", ""),
        ("9999", ""),
        ("9" * 18, ""),
        ("-2", "de"),
        ("-0", ""),
        ("-9999", "abcde"),
        ("end", ""),
        ("1h", "abcde"),
        ("2099-01-01", ""),
    ],
)
def test_reading_begins_where_it_is_told(cli: Any, name: str, start: str, seen: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, *"abcde")
    assert cli.ok("consume", name, "--exit-at-end", "--from", start) == "".join(f"{letter}\n" for letter in seen)


def test_an_offset_that_a_partition_does_not_hold_begins_at_its_nearest_end(cli: Any, name: str) -> None:
    cli.ok("topic", "create", name, "--partitions", "2")
    cli.ok("produce", name, "--partition", "0", *"abcde")
    cli.ok("produce", name, "--partition", "1", *"xyz")
    past = cli("consume", name, "--exit-at-end", "--from", "9999")
    assert (past.exit_code, past.stdout) == (0, "")
    assert past.stderr == "2 of 2 partitions end before offset 9999, at 5: reading begins at the end.\n"
    one = cli("consume", name, "--exit-at-end", "--from", "4")
    assert (one.stdout, one.stderr.split(":")[0]) == ("e\n", "1 of 2 partitions end before offset 4")
    alone = cli("consume", name, "--exit-at-end", "--from", "9999", "--partition", "1", "--json")
    assert (alone.stdout, alone.stderr.split(":")[0]) == ("", "The partition ends before offset 9999, at 3")
    cli.ok("topic", "trim", name, "--before", "3", "--partition", "0", "--yes")
    before = cli("consume", name, "--exit-at-end", "--from", "1", "--format", "%p %o")
    assert sorted(before.stdout.splitlines()) == ["0 3", "0 4", "1 1", "1 2"] and before.stderr == ""


def test_reading_stops_after_so_many_records(cli: Any, name: str) -> None:
    cli.ok("produce", name, *"abcde")
    assert cli.ok("consume", name, "--max", "2") == "a\nb\n"


def test_a_group_goes_on_where_it_was(cli: Any, name: str) -> None:
    cli.ok("produce", name, *"abcde")
    assert cli.ok("consume", name, "--group", name, "--max", "2") == "a\nb\n"
    assert cli.ok("consume", name, "--group", name, "--exit-at-end") == "c\nd\ne\n"
    refused = cli("consume", name, "--group", name, "--from", "3")
    assert refused.exit_code == 2 and "reset-offsets" in refused.stderr


def test_reading_without_a_group_leaves_no_group_behind(cli: Any, name: str) -> None:
    cli.ok("produce", name, "a")
    cli.ok("consume", name, "--exit-at-end")
    assert "headwater-cli" not in [row["group"] for row in cli.json("group", "list")]


def test_a_topic_that_does_not_exist_is_not_created_by_reading(cli: Any, name: str) -> None:
    missing = cli("consume", name, "--exit-at-end")
    assert missing.exit_code == 1
    assert missing.stderr.startswith(f"headwater: Topic {name} does not exist.")
    assert name not in [row["topic"] for row in cli.json("topic", "list")]


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(cli: Any, name: str, bootstrap: str) -> None:
    cli.ok("produce", name, input="".join(f"{number}\n" for number in range(100_000)))
    consume = subprocess.Popen(
        [*HEADWATER, "consume", name],
        env=environment(bootstrap),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert consume.stdout is not None and consume.stderr is not None
    with consume:
        assert consume.stdout.readline() == b"0\n"
        consume.stdout.close()
        assert consume.stderr.read() == b""
        assert consume.wait(60) == 141


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_following_and_commits_what_was_shown(
    cli: Any, name: str, bootstrap: str, number: signal.Signals
) -> None:
    cli.ok("produce", name, "a", "b")
    consume = subprocess.Popen(
        [*HEADWATER, "consume", name, "--group", name],
        env=environment(bootstrap),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert consume.stdout is not None and consume.stderr is not None
    with consume:
        assert [consume.stdout.readline(), consume.stdout.readline()] == [b"a\n", b"b\n"]
        consume.send_signal(number)
        assert consume.stderr.read() == b""
        assert consume.wait(60) == 0
    assert cli.json("group", "describe", name)["partitions"][0]["committed"] == 2
