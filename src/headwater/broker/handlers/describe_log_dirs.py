"""DescribeLogDirs (35): how much of the disk each partition takes. Versions 1 to 4: from 4 on with the disk's size
and room.

A broker has one data directory. Topics and partitions that do not exist are left out, as Kafka does.
"""

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.broker.partition import Partition
from headwater.model.errors import ErrorCode
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=35, name="DescribeLogDirs", min_version=1, max_version=4)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    if request.topics is None:
        topics = [_topic(topic.name, topic.partitions()) for topic in broker.catalog]
    else:
        topics = [_topic(asked.topic, _asked(broker, asked)) for asked in request.topics]
    log_dir, total_bytes, usable_bytes = await asyncio.to_thread(_measure, broker.config.data_dir)
    result = Message(
        error_code=ErrorCode.NONE,
        log_dir=log_dir,
        topics=[topic for topic in topics if topic.partitions],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return Message(error_code=ErrorCode.NONE, results=[result])


def _asked(broker: "Broker", asked: Message) -> list[Partition]:
    topic = broker.catalog.find(asked.topic)
    if topic is None:
        return []
    return [topic.led[index] for index in asked.partitions if index in topic.led]


def _topic(name: str, partitions: Iterable[Partition]) -> Message:
    return Message(
        name=name,
        partitions=[
            Message(
                partition_index=partition.id.index,
                partition_size=partition.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            for partition in partitions
        ],
    )


def _measure(data_dir: Path) -> tuple[str, int, int]:
    usage = shutil.disk_usage(data_dir)
    return str(data_dir.resolve()), usage.total, usage.free
