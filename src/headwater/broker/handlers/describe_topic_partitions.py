"""DescribeTopicPartitions (75), version 0: partitions of topics, in the order of their names, a page at a time.

A page holds at most as many partitions as asked for, and never more than MAX_PARTITIONS; a cursor in the answer says
where the next one begins. No topics asked for means all. The request has no flag for authorized operations, so
they are always there. Lists of replicas are empty, never null: Java's client fails
on null.
"""

from typing import TYPE_CHECKING

from headwater.broker.api import Api, RequestContext
from headwater.broker.authorized_operations import ON_TOPIC
from headwater.broker.cluster.topic_description import describe_topic
from headwater.broker.settings.topic_name import check_topic_name
from headwater.model.errors import RequestError
from headwater.wire.message import Message
from headwater.wire.schema import NULL_UUID

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=75, name="DescribeTopicPartitions", min_version=0, max_version=0)

MAX_PARTITIONS = 2_000


def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    names = sorted({topic.name for topic in request.topics or broker.catalog})
    room = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    first_name, first_index = "", 0
    if request.cursor is not None:
        first_name, first_index = request.cursor.topic_name, max(0, request.cursor.partition_index)
    topics: list[Message] = []
    for name in names:
        if name < first_name:
            continue
        first = first_index if name == first_name else 0
        if room == 0:
            return Message(topics=topics, next_cursor=Message(topic_name=name, partition_index=first))
        try:
            check_topic_name(name)
            topic = broker.catalog.topic(name)
        except RequestError as error:
            # An unknown topic takes room, too: the answer stays bounded whatever is asked for.
            unknown = Message(error_code=error.code, name=name, topic_id=NULL_UUID, partitions=())
            unknown.topic_authorized_operations = ON_TOPIC
            topics.append(unknown)
            room -= 1
            continue
        end = min(topic.partition_count, first + room)
        topics.append(describe_topic(broker.cluster_nodes, topic, ON_TOPIC, first, end))
        room -= max(0, end - first)
        if end < topic.partition_count:
            return Message(topics=topics, next_cursor=Message(topic_name=name, partition_index=end))
    return Message(topics=topics, next_cursor=None)
