"""The producer of the sink: each batch once and in order, though brokers restart, move, lose answers and refuse."""

from collections.abc import Iterator

import pytest

from headwater.client.topic_partition import TopicPartition
from headwater.model.errors import ErrorCode
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.client.config import client_config
from headwater.pipelines.errors import BrokerUnreachable, RequestRefused
from headwater.pipelines.sink.batches import PackedBatch
from headwater.pipelines.sink.errors import ProducerFenced, RecordTooLarge
from headwater.pipelines.sink.producer import IdempotentProducer, SinkProducerIdentity
from headwater.pipelines.sink.task import new_producer
from headwater.records.batch import parse_header
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing import Broker
from headwater.wire.api_keys import ApiKey
from headwater.wire.message import Message
from headwater.wire.typed.metadata import MetadataRequest, MetadataResponse
from headwater.wire.typed.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.pipelines.reading_back import read_back
from tests.pipelines.scripted_cluster import METADATA, Log, Misdeed, ScriptedCluster, running
from tests.pipelines.topics import Topics

PRODUCE = ApiKey.PRODUCE
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Written(ScriptedCluster):
    """Keeps what it is told to write, in the order in which it came."""

    def __init__(self) -> None:
        super().__init__()
        self.versions[PRODUCE] = (3, 11)
        self.came: list[tuple[int, TopicPartition, int]] = []
        """(node, partition, base sequence) of every batch."""

    def answer(self, node: int, api_key: int, request: Message) -> Message | bytes | None:
        if not isinstance(request, ProduceRequest):
            return super().answer(node, api_key, request)
        responses = []
        for topic in request.topic_data:
            for partition in topic.partition_data:
                assert partition.records is not None
                sequence = parse_header(partition.records).base_sequence
                self.came.append((node, TopicPartition(topic.name, partition.index), sequence))
            results = [PartitionProduceResponse(index=partition.index) for partition in topic.partition_data]
            responses.append(TopicProduceResponse(name=topic.name, partition_responses=results))
        right = ProduceResponse(responses=responses)
        misdeeds = self.misdeeds.get(PRODUCE)
        return misdeeds.pop(0)(request, right) if misdeeds else right


@pytest.fixture
def brokers() -> Iterator[Written]:
    scripted = Written()
    with running(scripted, brokers=2):
        scripted.topic("t", Log(leader=0), Log(leader=1))
        yield scripted


def producer_for(scripted: Written, patience_ms: int = 20_000) -> IdempotentProducer:
    options = {"bootstrap.servers": scripted.bootstrap, "default.api.timeout.ms": str(patience_ms)}
    return IdempotentProducer(ClusterClient(client_config(options)), SinkProducerIdentity(7, 0))


def batch(to: TopicPartition, *values: bytes) -> PackedBatch:
    return PackedBatch(to, build_batch([Record(None, value) for value in values], timestamp=1))


def fail_with(code: int) -> Misdeed:
    def misdeed(request: ProduceRequest, right: ProduceResponse) -> ProduceResponse:
        right.responses[0].partition_responses[0].error_code = code
        return right

    return misdeed


def test_batches_go_to_the_leader_with_their_place_in_the_sequence(brokers: Written) -> None:
    producer = producer_for(brokers)
    producer.send([batch(P0, b"a", b"b"), batch(P1, b"x"), batch(P0, b"c")])
    producer.send([batch(P0, b"d")])
    producer.flush()
    assert [came for came in brokers.came if came[1] == P0] == [(0, P0, 0), (0, P0, 2), (0, P0, 3)]
    assert [came for came in brokers.came if came[1] == P1] == [(1, P1, 0)]


def test_a_batch_whose_answer_was_lost_is_sent_again_as_the_same(brokers: Written) -> None:
    brokers.misbehave(PRODUCE, lambda request, right: None)
    producer = producer_for(brokers)
    producer.send([batch(P0, b"a"), batch(P0, b"b")])
    producer.flush()
    assert brokers.came == [(0, P0, 0), (0, P0, 0), (0, P0, 1)]


def test_a_batch_follows_its_leader(brokers: Written) -> None:
    def move(request: ProduceRequest, right: ProduceResponse) -> Message | bytes | None:
        brokers.topic("t", Log(leader=1), Log(leader=1))
        return fail_with(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request, right)

    brokers.misbehave(PRODUCE, move)
    producer = producer_for(brokers)
    producer.send([batch(P0, b"a")])
    producer.flush()
    assert brokers.came == [(0, P0, 0), (1, P0, 0)]


def test_a_leader_that_is_not_elected_yet_is_waited_for(brokers: Written) -> None:
    def not_ready(request: MetadataRequest, right: MetadataResponse) -> MetadataResponse:
        right.topics[0].error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return right

    brokers.misbehave(METADATA, not_ready, not_ready)
    producer = producer_for(brokers)
    producer.send([batch(P0, b"a"), batch(P1, b"x")])
    producer.flush()
    assert sorted(brokers.came) == [(0, P0, 0), (1, P1, 0)]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, RecordTooLarge),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, RequestRefused),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, RequestRefused),
    ],
)
def test_what_does_not_pass_is_not_tried_again(brokers: Written, code: int, error: type[Exception]) -> None:
    brokers.misbehave(PRODUCE, fail_with(code))
    producer = producer_for(brokers)
    producer.send([batch(P0, b"a")])
    with pytest.raises(error):
        producer.flush()
    producer.close()
    assert len(brokers.came) == 1


def test_patience_with_brokers_that_are_away_has_an_end(brokers: Written) -> None:
    brokers.misbehave(PRODUCE, *[lambda request, right: None] * 100)
    producer = producer_for(brokers, patience_ms=300)
    with pytest.raises(BrokerUnreachable, match="Is a broker running there"):
        producer.send([batch(P0, b"a"), batch(P0, b"b")])
        producer.flush()


def test_a_broker_that_restarts_has_every_batch_once(headwater: Broker) -> None:
    topics = Topics(headwater.bootstrap)
    to = TopicPartition(topics.create(), 0)
    cluster = ClusterClient(client_config({"bootstrap.servers": headwater.bootstrap}))
    producer = IdempotentProducer(cluster, new_producer(cluster))
    producer.send([batch(to, b"%d" % number) for number in range(20)])
    headwater.restart()
    producer.send([batch(to, b"%d" % number) for number in range(20, 40)])
    producer.flush()
    cluster.close()
    assert [message.value() for message in read_back(headwater.bootstrap, to.topic)] == [b"%d" % n for n in range(40)]
