"""ElectLeaders (43), versions 0 to 2. With one replica per partition the leader is always the preferred one, so no
election is ever needed. When all partitions are meant (null), those without need of one are left out, which is all of
them.
"""

from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=43, name="ElectLeaders", min_version=0, max_version=2)

PREFERRED, UNCLEAN = 0, 1


def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"Election type {request.election_type} is unknown.")
    return Message(
        error_code=ErrorCode.NONE,
        replica_election_results=[
            Message(
                topic=asked.topic,
                partition_result=[_elect(broker, asked.topic, index) for index in asked.partitions],
            )
            for asked in request.topic_partitions or ()
        ],
    )


def _elect(broker: "Broker", topic: str, index: int) -> Message:
    try:
        broker.catalog.topic(topic).partition(index)
    except RequestError as error:
        return Message(partition_id=index, error_code=error.code, error_message=error.message)
    return Message(
        partition_id=index, error_code=ErrorCode.ELECTION_NOT_NEEDED, error_message="The leader is the preferred one."
    )
