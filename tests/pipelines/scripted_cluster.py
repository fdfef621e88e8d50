"""Brokers that do as a test tells them, on real sockets: they lead what they are given, and misbehave when asked to.

They speak through the server's side of the wire code, and keep their logs as lists of batches."""

import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from headwater.model.errors import ErrorCode
from headwater.records.batch import parse_header
from headwater.wire.api_keys import ApiKey
from headwater.wire.message import Message
from headwater.wire.messages import read_body, read_header, write_response
from headwater.wire.typed.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.typed.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headwater.wire.typed.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.typed.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headwater.wire.typed.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API_VERSIONS, FIND_COORDINATOR, METADATA = ApiKey.API_VERSIONS, ApiKey.FIND_COORDINATOR, ApiKey.METADATA
LIST_OFFSETS, FETCH = ApiKey.LIST_OFFSETS, ApiKey.FETCH
VERSIONS: dict[int, tuple[int, int]] = {
    FETCH: (4, 18),
    LIST_OFFSETS: (1, 11),
    METADATA: (0, 13),
    API_VERSIONS: (0, 4),
    FIND_COORDINATOR: (0, 6),
}
WAKE_S = 0.005


@dataclass
class Log:
    leader: int = 0
    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int | None = None
    """The high watermark, if it is not the end of the last batch."""
    stable: int | None = None
    aborted: list[tuple[int, int]] = field(default_factory=list)

    @property
    def high_watermark(self) -> int:
        if self.end is not None:
            return self.end
        return parse_header(self.batches[-1]).last_offset + 1 if self.batches else 0

    @property
    def last_stable(self) -> int:
        return self.high_watermark if self.stable is None else self.stable


Misdeed = Callable[[Any, Any], Message | bytes | None]
"""Given a request and the right answer: what to answer instead. Bytes are sent as they are; None closes."""


class ScriptedCluster:
    def __init__(self, versions: dict[int, tuple[int, int]] | None = None) -> None:
        self.versions = dict(versions or VERSIONS)
        self.topics: dict[str, dict[int, Log]] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.misdeeds: dict[int, list[Misdeed]] = {}
        """By API: the next requests are answered so, one each."""
        self.asked: list[tuple[int, int]] = []
        """(node, API) of every request."""
        self.addresses: list[tuple[str, int]] = []

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.addresses[0])

    def topic(self, name: str, *logs: Log) -> None:
        self.topics[name] = dict(enumerate(logs))
        self.topic_ids[name] = uuid.uuid4()

    def misbehave(self, api_key: int, *misdeeds: Misdeed) -> None:
        self.misdeeds.setdefault(api_key, []).extend(misdeeds)

    def answer(self, node: int, api_key: int, request: Message) -> Message | bytes | None:
        self.asked.append((node, api_key))
        answers: dict[int, Callable[[Any], Message]] = {
            API_VERSIONS: self._versions,
            METADATA: self._metadata,
            LIST_OFFSETS: self._list_offsets,
            FETCH: self._fetch,
            FIND_COORDINATOR: self._find_coordinator,
        }
        right = answers[api_key](request)
        misdeeds = self.misdeeds.get(api_key)
        return misdeeds.pop(0)(request, right) if misdeeds else right

    def _versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()
            ]
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=host, port=port)
                for node, (host, port) in enumerate(self.addresses)
            ],
            topics=[self._describe(name) for name in names],
        )

    def _describe(self, name: str) -> MetadataResponseTopic:
        logs = self.topics.get(name)
        if logs is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=log.leader) for number, log in logs.items()
        ]
        return MetadataResponseTopic(name=name, topic_id=self.topic_ids[name], partitions=partitions)

    def _find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        host, port = self.addresses[0]
        coordinators = [Coordinator(key=key, host=host, port=port) for key in request.coordinator_keys]
        return FindCoordinatorResponse(host=host, port=port, coordinators=coordinators)

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                log = self.topics[topic.name][asked.partition_index]
                end = log.last_stable if request.isolation_level else log.high_watermark
                offset = end if asked.timestamp == -1 else log.start
                results.append(ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset))
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
        return ListOffsetsResponse(topics=topics)

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        deadline_s = time.monotonic() + request.max_wait_ms / 1000
        while True:
            answer = self._read(request)
            has_news = any(p.records or p.error_code for topic in answer.responses for p in topic.partitions)
            if has_news or time.monotonic() >= deadline_s:
                return answer
            time.sleep(WAKE_S)

    def _read(self, request: FetchRequest) -> FetchResponse:
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        responses = []
        for topic in request.topics:
            name = topic.topic or names.get(topic.topic_id)
            partitions = [self._read_one(name, asked, request.isolation_level) for asked in topic.partitions]
            responses.append(FetchableTopicResponse(topic=name or "", topic_id=topic.topic_id, partitions=partitions))
        return FetchResponse(responses=responses)

    def _read_one(self, name: str | None, asked: FetchPartition, isolation_level: int) -> PartitionData:
        result = PartitionData(partition_index=asked.partition, high_watermark=-1, records=b"")
        if name is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return result
        log = self.topics[name][asked.partition]
        if not log.start <= asked.fetch_offset <= log.high_watermark:
            result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return result
        result.high_watermark, result.last_stable_offset = log.high_watermark, log.last_stable
        readable = log.last_stable if isolation_level else log.high_watermark
        found = b""
        for batch in log.batches:
            header = parse_header(batch)
            if header.last_offset < asked.fetch_offset or header.base_offset >= readable:
                continue
            if found and len(found) + len(batch) > asked.partition_max_bytes:
                break
            found += batch
        result.records = found
        aborted = [
            AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first in log.aborted
        ]
        result.aborted_transactions = aborted if isolation_level else None
        return result


@contextmanager
def running(cluster: ScriptedCluster, brokers: int = 1) -> Iterator[ScriptedCluster]:
    with ExitStack() as stack:
        for node in range(brokers):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            cluster.addresses.append(listener.getsockname()[:2])
            threading.Thread(target=_accept, args=(cluster, node, listener), daemon=True).start()
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
        yield cluster


def _accept(cluster: ScriptedCluster, node: int, listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(cluster, node, connection), daemon=True).start()


def _serve(cluster: ScriptedCluster, node: int, connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as incoming, suppress(ConnectionError):
        while len(length := incoming.read(4)) == 4:
            frame = incoming.read(*struct.unpack(">i", length))
            header = read_header(frame)
            answer = cluster.answer(node, header.api_key, read_body(frame, header))
            if answer is None:
                return
            if isinstance(answer, Message):
                response = write_response(header.api_key, header.api_version, header.correlation_id, answer)
                answer = struct.pack(">i", len(response)) + response
            connection.sendall(answer)
