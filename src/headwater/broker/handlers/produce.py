"""Produce (0): append batches. Versions 3 to 13 are served; 0 is advertised as the lowest, because older librdkafka
otherwise sends its batches uncompressed (KAFKA-18659).

    acks  0 no answer (an error closes the connection, as in Kafka), 1 the first replica has the batch, -1 all have it
"""

from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_topic, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.broker.metrics.metrics import Metrics
from headwater.broker.produce.producing import Producing
from headwater.broker.quotas.request_usage import RequestUsage
from headwater.security.access_codes import Operation
from headwater.transport.connection import Answer, CloseConnection, Pieces
from headwater.wire import produce
from headwater.wire.messages import RequestHeader
from headwater.wire.produce import ProduceRequest, ProduceTopicResult

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=produce.KEY,
    name="Produce",
    access=Access.by_handler(
        on_transactional_id(
            Operation.WRITE,
            refused_at="responses[].partition_responses[].error_code",
            condition="of transactional batches",
        ),
        on_topic(Operation.WRITE, "topic_data[].name", refused_at="responses[].partition_responses[].error_code"),
    ),
    min_version=produce.MIN_VERSION,
    max_version=produce.MAX_VERSION,
    advertised_min_version=0,
    overlaps=True,
)


def handle_frame(broker: "Broker", frame: bytearray, context: RequestContext) -> Answer:
    request = produce.read_request(frame, context.header)
    usage = context.usage
    if usage is None or not usage.received(len(frame)):
        return Producing(broker, context.access, context.header, request, _respond).run()
    return Producing(broker, context.access, context.header, request, partial(_respond, usage=usage)).run()


def _respond(
    header: RequestHeader,
    request: ProduceRequest,
    results: list[ProduceTopicResult],
    metrics: Metrics,
    usage: RequestUsage | None = None,
) -> Pieces | None:
    errors = [result for topic in results for result in topic.partitions if result.error_code]
    for result in errors:
        metrics.error(API.name, result.error_code)
    throttle_ms = usage.answer(is_told=request.acks != 0) if usage is not None else 0
    if request.acks != 0:
        return [produce.write_response(header, results, throttle_ms)]
    if errors:
        raise CloseConnection(f"acks=0 and {errors[0].error_code.name}: the client has no other way to learn of it")
    return None
