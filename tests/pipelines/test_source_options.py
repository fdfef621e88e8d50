"""Options of a query: what is known, what is refused, and what the refusal says."""

from collections.abc import Mapping

import pytest

from headwater.client.address import BrokerAddress
from headwater.client.offsets import EARLIEST, LATEST
from headwater.client.settings import SaslLogin
from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.config import client_config
from headwater.pipelines.errors import InvalidOption
from headwater.pipelines.source.options import SourceOptions, source_options
from headwater.pipelines.source.positions import AtOffsets, AtTime, AtTimes, Everywhere
from headwater.pipelines.source.subscription import AssignedPartitions, Matching, Subscribed
from headwater.security.sasl_mechanisms import SaslMechanism

NEEDED = {"kafka.bootstrap.servers": "one:1,two:2", "subscribe": "orders"}


def parsed(options: Mapping[str, str] = {}, *, is_streaming: bool = False, **named: str) -> SourceOptions:
    return source_options({**NEEDED, **options, **named}, is_streaming)


def refused(options: Mapping[str, str] = {}, *, is_streaming: bool = False, **named: str) -> str:
    with pytest.raises(InvalidOption) as caught:
        parsed(options, is_streaming=is_streaming, **named)
    return str(caught.value)


def test_names_are_read_in_any_case() -> None:
    options = source_options({"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "x", "FailOnDataLoss": "FALSE"}, True)
    assert options.subscription == Subscribed(("x",))
    assert options.fail_on_data_loss is False


def test_a_batch_goes_from_the_first_record_to_the_last_and_a_stream_starts_at_the_end() -> None:
    assert (parsed().starting, parsed().ending) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert parsed(is_streaming=True).starting == Everywhere(LATEST)


def test_topics_are_named_in_three_ways() -> None:
    brokers = {"kafka.bootstrap.servers": "a:1"}
    ways = {"subscribe": " a, b ,,a", "assign": '{"a": [1, 0]}', "subscribePattern": "orders-.*"}
    found = [source_options({**brokers, way: text}, False).subscription for way, text in ways.items()]
    assert found == [
        Subscribed(("a", "b")),
        AssignedPartitions((TopicPartition("a", 0), TopicPartition("a", 1))),
        Matching("orders-.*"),
    ]


def test_a_time_counts_before_offsets_and_one_for_all_before_all() -> None:
    by_partition = '{"orders": {"0": 5}}'
    expected = {TopicPartition("orders", 0): 5}
    assert parsed(startingOffsets=by_partition).starting == AtOffsets("startingOffsets", expected)
    by_time = {"startingOffsets": by_partition, "startingOffsetsByTimestamp": by_partition}
    assert parsed(by_time).starting == AtTimes("startingOffsetsByTimestamp", expected)
    assert parsed(by_time, startingTimestamp="7").starting == AtTime("startingTimestamp", 7)


def test_an_unknown_option_is_named_with_the_nearest_known_one() -> None:
    assert "startingOfsets is unknown. Did you mean startingOffsets?" in refused(startingOfsets="latest").replace(
        "startingofsets", "startingOfsets"
    )
    assert "zzz is unknown. Known are:" in refused(zzz="1")
    assert "kafka.fetch.bytes is unknown" in refused({"kafka.fetch.bytes": "1"})


LOGIN = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-512"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"assign": '{"a": [0]}'}, "assign and subscribe"),
        ({"subscribe": " , "}, "must name topics"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"startingOffsets": "yesterday"}, "must be like"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "must be like"),
        ({"startingOffsets": '{"orders": {"zero": 1}}'}, "must be like"),
        ({"startingOffsets": '{"orders": [1]}'}, "must be like"),
        ({"startingOffsets": "[" * 100_000}, "must be like"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "must be like"),
        ({"startingTimestamp": "soon"}, "startingTimestamp is 'soon'"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"maxOffsetsPerTrigger": "9" * 5000}, "at least 1"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "more than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "1 fortnight"}, "duration"),
        ({"pollWaitMs": "-1"}, "from 0 to 60000"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"kafka.bootstrap.servers": "host:port"}, "not host:port"),
        ({"kafka.bootstrap.servers": ","}, "empty"),
        ({"kafka.isolation.level": "serializable"}, "read_committed or read_uncommitted"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism is missing; it can be PLAIN or SCRAM-SHA-256"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}, "it can be PLAIN or SCRAM-SHA-256"),
        ({**LOGIN, "kafka.sasl.username": "alice"}, "needs kafka.sasl.username and kafka.sasl.password"),
        ({**LOGIN, "kafka.sasl.jaas.config": 'x required username="a" password="hush"'}, "a login module, required"),
        ({**LOGIN, "kafka.sasl.jaas.config": 'ScramLoginModule required username="a";'}, "needs kafka.sasl.username"),
        ({"kafka.sasl.kerberos.service.name": "kafka"}, "kafka.sasl.kerberos.service.name is unknown"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "a.jks"}, "Java key store"),
        ({"kafka.client.id": "a", "client.id": "b"}, "given twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused_with_the_reason(more: dict[str, str], words: str) -> None:
    assert words in refused(more, is_streaming="PerTrigger" in str(more) or "pollWaitMs" in more)


def test_a_query_without_brokers_or_topics_is_refused() -> None:
    for missing in NEEDED:
        given = {name: value for name, value in NEEDED.items() if name != missing}
        with pytest.raises(InvalidOption, match=r"missing|none of them"):
            source_options(given, False)


def test_a_stream_has_no_end() -> None:
    assert "endingOffsets is for batch queries, and not for streams" in refused(
        is_streaming=True, endingOffsets="latest"
    )


def test_options_of_groups_are_accepted_and_have_no_meaning() -> None:
    plain = parsed()
    assert parsed({"kafka.group.id": "g", "kafka.session.timeout.ms": "1"}, groupIdPrefix="mine") == plain


def test_how_to_reach_the_brokers_is_read_with_and_without_the_prefix() -> None:
    config = parsed({"isolation.level": "READ_COMMITTED", "kafka.request.timeout.ms": "500"}).client
    assert config.bootstrap == (BrokerAddress("one", 1), BrokerAddress("two", 2))
    assert (config.is_read_committed, config.request_timeout_ms) == (True, 500)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", BrokerAddress("host", 9092)),
        ("PLAINTEXT://host:1", BrokerAddress("host", 1)),
        ("[::1]:5", BrokerAddress("::1", 5)),
        ("::1", BrokerAddress("::1", 9092)),
    ],
)
def test_an_address_is_read_in_the_ways_people_write_it(text: str, expected: BrokerAddress) -> None:
    assert parsed({"kafka.bootstrap.servers": text}).client.bootstrap == (expected,)


def test_durations_have_units() -> None:
    delays = [parsed(is_streaming=True, maxTriggerDelay=text).max_trigger_delay_ms for text in ("250", "90s", "2 min")]
    assert delays == [250, 90_000, 120_000]


@pytest.mark.parametrize(
    "login",
    [
        {"kafka.sasl.username": "alice", "kafka.sasl.password": 'a "b" \\c'},
        {
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="alice" password="a \\"b\\" \\\\c";'
        },
        {"kafka.sasl.jaas.config": "ScramLoginModule required password='a \"b\" \\\\c' username='alice'"},
    ],
)
def test_a_login_is_read_from_the_names_of_librdkafka_and_of_java(login: dict[str, str]) -> None:
    config = client_config({**LOGIN, "kafka.bootstrap.servers": "a:1", **login})
    assert config.sasl == SaslLogin(mechanism=SaslMechanism.SCRAM_SHA_512, user="alice", password='a "b" \\c')
    assert config.tls is None and config.connection.sasl == config.sasl
    assert '"b"' not in repr(config)


def test_a_login_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(InvalidOption) as refused:
        client_config({**LOGIN, "kafka.bootstrap.servers": "a:1", "kafka.sasl.jaas.config": "hush"})
    assert "hush" not in str(refused.value)
