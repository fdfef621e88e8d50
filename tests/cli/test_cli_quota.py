"""`headwater quota`: what its words mean, and what a broker makes of them."""

import json
from typing import Any

import pytest

from headwater.cli.output import CommandFailed
from headwater.cli.quota_words import OPTIONS, limit_of, limit_text, rate_text
from headwater.testing import Broker
from headwater.transport.ports import free_port


@pytest.mark.parametrize(
    ("option", "text", "value", "shown"),
    [
        ("produce", "10MB/s", 10_000_000, "10MB/s"),
        ("produce", "512KiB/s", 524_288, "524.288kB/s"),
        ("consume", "1.5 GB", 1_500_000_000, "1.5GB/s"),
        ("consume", "100kB", 100_000, "100kB/s"),
        ("consume", "4096", 4096, "4.096kB/s"),
        ("consume", "999B/s", 999, "999B/s"),
        ("consume", "1234567", 1_234_567, "1234.567kB/s"),
        ("requests", "50%", 50, "50%"),
        ("requests", "12.5", 12.5, "12.5%"),
        ("mutations", "5/s", 5, "5/s"),
        ("mutations", "0.5", 0.5, "0.5/s"),
        ("connections", "20/s", 20, "20/s"),
    ],
)
def test_a_limit_is_read_and_shown_so_that_it_reads_the_same(option: str, text: str, value: float, shown: str) -> None:
    assert limit_of(option, text) == value
    assert limit_text(OPTIONS[option], value) == shown
    assert limit_of(option, shown) == value


@pytest.mark.parametrize(
    ("option", "text"),
    [("produce", "10MB/h"), ("produce", "-1"), ("produce", "5i"), ("requests", "5/s"), ("mutations", "5%")],
)
def test_a_limit_that_is_none_is_refused_with_an_example(option: str, text: str) -> None:
    with pytest.raises(CommandFailed, match="such as"):
        limit_of(option, text)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("set", "--produce", "1MB/s"), "Whose limits?"),
        (("set", "--user", "a"), "Which limit?"),
        (("set", "--user", "a", "--user-default", "--produce", "1"), "exclude each other"),
        (("set", "--user", "a", "--ip", "10.0.0.7", "--produce", "1"), "neither a user nor a client id"),
        (("set", "--ip", "db.example.com", "--connections", "1"), "is not an IP address"),
        (("set", "--ip", "10.0.0.7", "--produce", "1"), "There is no quota"),
        (("set", "--user", "a", "--produce", "0"), "greater than 0"),
        (("clear", "--user", "a", "--only", "speed"), "is no limit. Use one of: produce, consume"),
        (("show",), "Whose limits?"),
    ],
)
def test_words_that_mean_nothing_are_refused_before_a_broker_is_asked(
    cli_at: Any, args: tuple[str, ...], told: str
) -> None:
    refused = cli_at("127.0.0.1:1")("quota", *args)
    assert refused.exit_code == 2 and told in refused.stderr


def test_limits_are_set_shown_listed_and_removed(cli: Any, name: str) -> None:
    alone, both = ("--user", name), ("--user", name, "--client-id-default")
    cli.ok("quota", "set", *alone, "--produce", "10MB/s", "--requests", "50%")
    told = cli("quota", "set", *alone, "--consume", "20MB/s")
    assert told.exit_code == 0 and "consume 20MB/s" in told.stderr
    cli.ok("quota", "set", *both, "--mutations", "0.5")
    assert cli.ok("quota", "show", *alone).splitlines() == ["consume 20MB/s", "produce 10MB/s", "requests 50%"]
    assert cli.json("quota", "show", *both)["quotas"] == {"controller_mutation_rate": 0.5}
    assert {"entity": {"user": name, "client-id": None}, "quotas": {"controller_mutation_rate": 0.5}} in cli.json(
        "quota", "list"
    )
    (row,) = [line for line in cli.ok("quota", "list").splitlines() if line.startswith(f"user '{name}'  ")]
    assert row.split()[2:] == ["10MB/s", "20MB/s", "50%", "-", "-"]
    assert cli("quota", "clear", *alone).exit_code == 2  # no terminal to ask on
    cli.ok("quota", "clear", *alone, "--only", "produce", "--yes")
    assert json.loads(cli.ok("quota", "show", *alone, "--json"))["quotas"].keys() == {
        "consumer_byte_rate",
        "request_percentage",
    }
    cli.ok("quota", "clear", *alone, "--yes")
    assert cli("quota", "show", *alone).exit_code == 1
    assert cli("quota", "clear", *alone, "--yes").exit_code == 1
    cli.ok("quota", "clear", *both, "--yes")


def test_an_address_is_limited_in_connections(cli: Any) -> None:
    cli.ok("quota", "set", "--ip", "10.99.0.7", "--connections", "20/s")
    assert cli.ok("quota", "show", "--ip", "10.99.0.7") == "connections 20/s\n"
    cli.ok("quota", "clear", "--ip", "10.99.0.7", "--yes")


def test_usage_tells_rates_and_who_is_throttled(cli_at: Any, name: str) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    with Broker(metrics=metrics) as broker:
        cli = cli_at(broker.bootstrap)
        assert cli.json("quota", "usage", "--metrics", metrics) == []
        cli.ok("topic", "create", name)
        cli.ok("quota", "set", "--user-default", "--produce", "1kB/s", "--requests", "1000%")
        cli.ok("produce", name, input="x" * 100_000 + "\n")
        first, second = cli.json("quota", "usage", "--metrics", metrics)
        assert (first["entity"], first["quota"]) == ({"user": "ANONYMOUS"}, "producer_byte_rate")
        assert first["rate"] > 1_000 and first["waits_ms"] > 10_000 and first["violations"] >= 1
        assert (second["quota"], second["limit"], second["waits_ms"]) == ("request_percentage", 1_000, 0)
        head, throttled, other = cli.ok("quota", "usage", "--metrics", metrics).splitlines()
        assert head.split() == ["OF", "LIMIT", "NOW", "WAITS", "VIOLATIONS"]
        assert throttled.startswith("user 'ANONYMOUS'  produce 1kB/s") and " s " in throttled
        assert other.split()[2:4] == ["requests", "1000%"] and other.split()[5] == "-"
    refused = cli("quota", "usage", "--metrics", metrics)
    assert refused.exit_code == 1 and "--metrics" in refused.stderr


@pytest.mark.parametrize(
    ("option", "rate", "shown"),
    [
        ("produce", 0.0, "0B/s"),
        ("produce", 999.4, "999B/s"),
        ("consume", 1_234_567.8, "1.23MB/s"),
        ("requests", 12.345, "12.3%"),
        ("mutations", 0.5, "0.5/s"),
    ],
)
def test_a_rate_is_shown_in_three_digits(option: str, rate: float, shown: str) -> None:
    assert rate_text(OPTIONS[option], rate) == shown
