"""Quotas are set, described and removed as in Kafka, outlive the broker, and are known by every node."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.quotas import client_quotas
from headwater.broker.quotas.client_quotas import ClientQuotas
from headwater.broker.settings import compiled_keys
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import MetaStore, Put
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.quota_entities import QuotaEntity, QuotaKey, QuotaTable
from headwater.testing import Broker
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.two_nodes import two_nodes
from tests.support.eventually import until
from tests.support.local_broker import Client, running
from tests.support.log_lines import own_lines
from tests.support.messages import nested
from tests.support.wire import WireClient

DESCRIBE, ALTER = 48, 49
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
IN, OUT, TIME, MUTATIONS = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
Parts = Sequence[tuple[str, str | None]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[WireClient]:
    """Without any quota at first."""
    with WireClient((broker.host, broker.port)) as client:
        for entity, values in described(client).items():
            assert altered(client, entry(entity, **dict.fromkeys(values))) == [(0, None)]
        yield client


def entry(entity: Parts, /, **values: float | None) -> dict[str, Any]:
    return nested(
        entity=[nested(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[nested(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def altered(client: WireClient, *entries: Any, validate_only: bool = False) -> list[tuple[int, str | None]]:
    answer = client.ask(ALTER, 1, entries=list(entries), validate_only=validate_only)
    return [(each.error_code, each.error_message) for each in answer.entries]


def described(
    client: WireClient, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = asked(client, *components, strict=strict)
    assert answer.error_code == 0, answer.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries
    }


def asked(client: WireClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    wanted = [nested(entity_type=kind, match_type=match_type, match=name) for kind, match_type, name in components]
    return client.ask(DESCRIBE, 1, components=wanted, strict=strict)


def test_a_filter_finds_what_kafkas_would(wire: WireClient) -> None:
    alice, both, anyone = (("user", "alice"),), (("user", "alice"), ("client-id", "app")), (("user", None),)
    client, ip = (("client-id", "app"),), (("ip", "10.0.0.7"),)
    entities = [alice, both, anyone, client, ip]
    limits = [{CONNECTIONS: 5.0} if each is ip else {IN: 1000.0, TIME: 12.5} for each in entities]
    entries = [entry(each, **values) for each, values in zip(entities, limits, strict=True)]
    assert altered(wire, *entries) == [(0, None)] * 5
    assert described(wire) == dict(zip(entities, limits, strict=True))
    assert described(wire, ("user", EXACT, "alice")).keys() == {alice, both}
    assert described(wire, ("user", EXACT, "alice"), strict=True).keys() == {alice}
    assert described(wire, ("user", DEFAULT, None)).keys() == {anyone}
    assert described(wire, ("user", SPECIFIED, None)).keys() == {alice, both, anyone}
    assert described(wire, ("client-id", SPECIFIED, None), strict=True).keys() == {client}
    assert described(wire, ("user", SPECIFIED, None), ("client-id", EXACT, "app")).keys() == {both}
    assert described(wire, ("ip", SPECIFIED, None)) == {ip: {CONNECTIONS: 5.0}}
    assert described(wire, strict=True) == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("ip", EXACT, "10.0.0.7"), ("user", EXACT, "alice")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "alice"), ("user", EXACT, "bob")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("team", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_filter_that_means_nothing_is_refused(wire: WireClient, components: Any, code: int) -> None:
    answer = asked(wire, *components)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message


def test_limits_are_altered_one_by_one_and_removed(wire: WireClient) -> None:
    alice = (("user", "alice"),)
    altered(wire, entry(alice, **{IN: 1000.0, OUT: 2000.0}))
    altered(wire, entry(alice, **{IN: 1500.0, MUTATIONS: 0.5, TIME: None}))
    assert described(wire) == {alice: {IN: 1500.0, OUT: 2000.0, MUTATIONS: 0.5}}
    altered(wire, entry(alice, **{IN: None, OUT: None, MUTATIONS: None, "speed": None}))
    assert described(wire) == {}


def test_what_is_only_validated_is_not_in_force(wire: WireClient) -> None:
    alice = (("user", "alice"),)
    assert altered(wire, entry(alice, **{IN: 1000.0}), entry(alice[:0]), validate_only=True) == [
        (0, None),
        (ErrorCode.INVALID_REQUEST, "A quota entity has a user, a client id or an IP address."),
    ]
    assert described(wire) == {}


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ([("user", "a")], {IN: 0.0}),
        ([("user", "a")], {IN: 0.5}),
        ([("user", "a")], {IN: float("nan")}),
        ([("user", "a")], {CONNECTIONS: 5.0}),
        ([("user", "a")], {"speed": 5.0}),
        ([("ip", "10.0.0.7")], {IN: 5.0}),
        ([("ip", "db.example.com")], {CONNECTIONS: 5.0}),
        ([("ip", "10.0.0.7"), ("user", "a")], {CONNECTIONS: 5.0}),
        ([("user", "a"), ("user", "a")], {IN: 5.0}),
        ([("user", "")], {IN: 5.0}),
        ([("team", "a")], {IN: 5.0}),
        ([], {IN: 5.0}),
    ],
)
def test_one_bad_limit_leaves_its_entity_as_it_was_and_no_other(wire: WireClient, entity: Any, values: Any) -> None:
    good = (("user", "b"),)
    (bad_code, message), good_result = altered(wire, entry(entity, **{OUT: 7.0}, **values), entry(good, **{IN: 5.0}))
    assert bad_code == ErrorCode.INVALID_REQUEST and message
    assert good_result == (0, None)
    assert described(wire) == {good: {IN: 5.0}}


def test_an_entity_is_named_once_in_a_request(wire: WireClient) -> None:
    alice = (("user", "alice"),)
    results = altered(
        wire, entry(alice, **{IN: 5.0}), entry(alice, **{OUT: 5.0}), entry((("user", None),), **{IN: 5.0})
    )
    assert [code for code, _ in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]
    assert described(wire) == {(("user", None),): {IN: 5.0}}


def test_names_of_any_kind_are_kept(wire: WireClient) -> None:
    names = ["CN=a,OU=b/c.d", "..", "*", "ü\N{SNOWMAN}", " ", "x" * 1024]
    entities = [(("user", name), ("client-id", name)) for name in names]
    assert altered(wire, *(entry(each, **{IN: 5.0}) for each in entities)) == [(0, None)] * len(names)
    assert described(wire).keys() == set(entities)


def test_quotas_outlive_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.ask(ALTER, 1, entries=[entry([("user", "alice")], **{IN: 1000.0})], validate_only=False)
            assert broker.meters.limits_clients
        async with running(tmp_path, files) as (broker, _):
            assert dict(broker.quotas.table) == {QuotaEntity.of([("user", "alice")]): {IN: 1000.0}}
            assert broker.meters.limits_clients

    asyncio.run(main())


def test_a_change_is_in_force_on_every_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_nodes(tmp_path) as (one, two):
            client = await Client.connect(one)
            alice = QuotaEntity.of([("user", "alice")])
            for values in ({IN: 1000.0, TIME: 50.0}, {IN: None}, {TIME: None}):
                await client.ask(ALTER, 1, entries=[entry([("user", "alice")], **values)], validate_only=False)
                kept = one.quotas.table.quotas(alice)
                assert (IN in kept) is bool(values.get(IN))
                await until(lambda kept=kept: two.quotas.table.quotas(alice) == kept)  # type: ignore[misc]
            assert not one.meters.limits_clients and not two.meters.limits_clients
            client.close()

    asyncio.run(main())


# The part alone


@asynccontextmanager
async def quotas_of(directory: Path) -> AsyncIterator[tuple[ClientQuotas, MetaStore]]:
    metadata = await open_metadata(f"sqlite:{directory / 'metadata.db'}")
    quotas = ClientQuotas(metadata)
    await quotas.load()
    try:
        yield quotas, metadata
    finally:
        await quotas.close()
        await metadata.close()


def test_many_limits_are_in_force_when_they_are_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_keys, "COMPILED_AT_ONCE", 4)
    built = []

    def table(items: Any, version: int) -> QuotaTable:
        built.append(len(items))
        return QuotaTable(dict(limit for _, limit in items))

    monkeypatch.setattr(client_quotas, "_table", table)

    async def main() -> None:
        async with quotas_of(tmp_path) as (quotas, _):
            names = [QuotaEntity.of([("user", f"user {number}")]) for number in range(20)]
            await asyncio.gather(*(set_one(quotas, each) for each in names))
            assert len(quotas.table) == 20

    async def set_one(quotas: ClientQuotas, entity: QuotaEntity) -> None:
        await quotas.alter(entity, [(IN, 5.0)])
        assert quotas.table.quotas(entity) == {QuotaKey.PRODUCER_BYTE_RATE: 5.0}

    asyncio.run(main())
    assert max(built) == 20


def test_there_are_so_many_limits_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MAX_LIMITS", 3)

    async def main() -> None:
        async with quotas_of(tmp_path) as (quotas, _):
            alice, bob = QuotaEntity.of([("user", "alice")]), QuotaEntity.of([("user", "bob")])
            await quotas.alter(alice, [(IN, 5.0), (OUT, 5.0)])
            with pytest.raises(RequestError, match="the most there may be") as refused:
                await quotas.alter(bob, [(IN, 5.0), (OUT, 5.0)])
            assert refused.value.code is ErrorCode.POLICY_VIOLATION
            await quotas.alter(alice, [(IN, 6.0), (OUT, 6.0)])
            await quotas.alter(bob, [(IN, 5.0)])
            assert len(quotas.table) == 2

    asyncio.run(main())


def test_a_limit_that_cannot_be_read_is_told_of_and_limits_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with quotas_of(tmp_path) as (quotas, metadata):
            bad = [b"", b"[]", b"{}", b'{"entity":{"user":"a"},"quotas":{"producer_byte_rate":-5}}']
            puts = [Put(keys.quota_key(f"user={number}", "x"), value) for number, value in enumerate(bad)]
            later = b'{"entity":{"user":"b"},"quotas":{"speed":5}}'
            await metadata.txn([], [*puts, Put(keys.quota_key("user=b", "speed"), later)])
            await quotas.load()
            assert len(quotas.table) == 0
            assert sum("metadata_value_unreadable" in line for line in own_lines(caplog)) == len(bad)

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
