"""The blocking connection and the one on an event loop, against a server that answers as a test says."""

import asyncio
import shutil
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from headwater.client.address import BrokerAddress
from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.client.asyncio_connection import AsyncioConnection
from headwater.client.blocking_cluster import BlockingCluster
from headwater.client.blocking_connection import BlockingConnection
from headwater.client.cluster_view import metadata_request
from headwater.client.errors import ConnectionLost
from headwater.client.settings import MAX_RESPONSE_BYTES, ConnectionSettings, TlsFiles
from headwater.wire.api_keys import ApiKey
from headwater.wire.message import Request, ResponseT
from headwater.wire.messages import RequestHeader
from headwater.wire.typed.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from headwater.wire.typed.list_groups import ListGroupsRequest
from headwater.wire.typed.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.client.scripted_broker import after_handshake, certificate, framed, response, scripted_broker, versions

PATIENT = ConnectionSettings(client_id="test", request_timeout_s=60.0)
CLOSING_S = 0.05
"""For the loop to say goodbye over TLS, before it ends."""
IMPATIENT = ConnectionSettings(client_id="test", request_timeout_s=0.2)

Ask: TypeAlias = Callable[[BrokerAddress, ConnectionSettings, Request[Any]], Any]


def ask_blocking(address: BrokerAddress, settings: ConnectionSettings, request: Request[ResponseT]) -> ResponseT:
    connection = BlockingConnection(address, settings)
    try:
        return connection.ask(request)
    finally:
        connection.close()


def ask_on_loop(address: BrokerAddress, settings: ConnectionSettings, request: Request[ResponseT]) -> ResponseT:
    async def scenario() -> ResponseT:
        try:
            connection = await AsyncioConnection.open(address, settings)
            try:
                return await connection.ask(request)
            finally:
                connection.close()
        finally:
            await asyncio.sleep(CLOSING_S)

    return asyncio.run(scenario())


both = pytest.mark.parametrize("ask", [ask_blocking, ask_on_loop])


def described(header: RequestHeader) -> bytes:
    return response(header, MetadataResponse(cluster_id="here"))


@both
def test_a_request_is_answered(ask: Ask) -> None:
    with scripted_broker(after_handshake(described)) as address:
        assert ask(address, PATIENT, MetadataRequest()).cluster_id == "here"


@both
def test_a_connection_that_is_refused_is_lost(ask: Ask) -> None:
    with scripted_broker(described) as address:
        pass
    with pytest.raises(ConnectionLost, match=str(address.port)):
        ask(address, PATIENT, MetadataRequest())


@both
def test_a_connection_that_ends_in_the_handshake_or_after_it_is_lost(ask: Ask) -> None:
    for answer in (lambda _: None, after_handshake(lambda _: None)):
        with scripted_broker(answer) as address, pytest.raises(ConnectionLost):
            ask(address, PATIENT, MetadataRequest())


@both
def test_a_response_of_which_only_a_part_comes_is_lost(ask: Ask) -> None:
    def half(header: RequestHeader) -> bytes:
        return described(header)[:20]

    with scripted_broker(after_handshake(half)) as address, pytest.raises(ConnectionLost):
        ask(address, IMPATIENT, MetadataRequest())


@both
def test_a_broker_that_is_silent_is_lost_when_the_time_is_up(ask: Ask) -> None:
    with scripted_broker(after_handshake(lambda _: b"")) as address, pytest.raises(ConnectionLost, match="in time"):
        ask(address, IMPATIENT, MetadataRequest())


@both
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", MAX_RESPONSE_BYTES + 1),
        framed(b""),
        framed(b"abc"),
        framed(struct.pack(">i", 77)),
        framed(struct.pack(">i", 1)),
    ],
    ids=["HTTP", "a length below zero", "a length over the limit", "nothing", "too short", "another id", "no body"],
)
def test_what_is_no_response_ends_the_connection(ask: Ask, answer: bytes) -> None:
    for script in (lambda _: answer, after_handshake(lambda _: answer)):
        with scripted_broker(script) as address, pytest.raises(ConnectionLost):
            ask(address, PATIENT, MetadataRequest())


@both
def test_what_the_broker_does_not_serve_is_not_sent(ask: Ask) -> None:
    with scripted_broker(after_handshake(described)) as address, pytest.raises(ConnectionLost, match="API 16"):
        ask(address, PATIENT, ListGroupsRequest())


@both
def test_a_certificate_is_trusted_by_its_file_and_its_name_is_checked(ask: Ask, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl, which is not installed")
    path, key = certificate(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(path, key)

    def settings(authorities: Path | None, *, checks_host_name: bool = True) -> ConnectionSettings:
        files = TlsFiles(str(authorities) if authorities else None, None, None, None, checks_host_name)
        return ConnectionSettings(client_id="test", tls=files, request_timeout_s=60.0)

    with scripted_broker(after_handshake(described), server) as address:
        named = BrokerAddress("localhost", address.port)
        assert ask(named, settings(path), MetadataRequest()).cluster_id == "here"
        assert ask(address, settings(path, checks_host_name=False), MetadataRequest()).cluster_id == "here"
        for wrong in (settings(None), ConnectionSettings(client_id="test", request_timeout_s=5.0)):
            with pytest.raises(ConnectionLost):
                ask(named, wrong, MetadataRequest())
        with pytest.raises(ConnectionLost, match=str(address.port)):
            ask(address, settings(path), MetadataRequest())


@both
def test_records_lie_where_the_bytes_of_the_response_landed(ask: Ask) -> None:
    size = 200_000

    def fetched(header: RequestHeader) -> bytes:
        partition = PartitionData(partition_index=0, records=bytes(size))
        topics = [FetchableTopicResponse(topic="t", partitions=[partition])]
        return response(header, FetchResponse(responses=topics))

    with scripted_broker(after_handshake(fetched, [(ApiKey.FETCH, 4, 12)])) as address:
        records = ask(address, PATIENT, FetchRequest()).responses[0].partitions[0].records
    assert isinstance(records, memoryview) and isinstance(records.obj, bytearray)
    assert len(records) == size < len(records.obj), "a view of the whole frame"


def test_on_a_loop_requests_go_out_before_the_responses_to_those_before_them() -> None:
    waiting: list[RequestHeader] = []

    def three_at_once(header: RequestHeader) -> bytes:
        waiting.append(header)
        return b"" if len(waiting) < 3 else b"".join(described(each) for each in waiting)

    async def scenario(address: BrokerAddress) -> None:
        connection = await AsyncioConnection.open(address, PATIENT)
        answers = await asyncio.gather(*(connection.ask(MetadataRequest()) for _ in range(3)))
        assert [each.cluster_id for each in answers] == ["here"] * 3
        connection.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await connection.ask(MetadataRequest())

    with scripted_broker(after_handshake(three_at_once)) as address:
        asyncio.run(scenario(address))


def test_a_request_that_is_given_up_does_not_disturb_the_next() -> None:
    waiting: list[RequestHeader] = []

    def second_with_first(header: RequestHeader) -> bytes:
        waiting.append(header)
        return b"" if len(waiting) == 1 else b"".join(described(each) for each in waiting)

    async def scenario(address: BrokerAddress) -> None:
        connection = await AsyncioConnection.open(address, PATIENT)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await connection.ask(MetadataRequest())
        assert (await connection.ask(MetadataRequest())).cluster_id == "here" and connection.is_open
        connection.close()

    with scripted_broker(after_handshake(second_with_first)) as address:
        asyncio.run(scenario(address))


def test_both_clusters_go_on_to_the_next_address() -> None:
    def here(header: RequestHeader) -> bytes:
        if header.api_key == ApiKey.API_VERSIONS:
            return response(header, versions())
        broker = MetadataResponseBroker(host=address.host, port=address.port)
        return response(header, MetadataResponse(brokers=[broker], cluster_id="here"))

    async def scenario() -> None:
        cluster = AsyncioCluster([gone, address], PATIENT)
        assert (await cluster.ask(metadata_request([]))).cluster_id == "here"
        assert await cluster.brokers() == [address] and await cluster.nodes() == [0]
        cluster.close()

    with scripted_broker(here) as gone:
        pass
    with scripted_broker(here) as address:
        asyncio.run(scenario())
        cluster = BlockingCluster([gone, address], PATIENT)
        assert cluster.ask(metadata_request([])).cluster_id == "here"
        assert cluster.brokers() == [address]
        cluster.close()
