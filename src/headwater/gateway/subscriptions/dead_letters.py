"""The records that a queue gave up on, shown and sent back."""

from confluent_kafka import Message

from headwater.gateway.http.bodies import Budget
from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.reading import ReadRequest, RecordReader
from headwater.gateway.subscriptions.bodies import Letter, Letters, RedriveIn, Redriven
from headwater.gateway.subscriptions.catalog import SubscriptionCatalog
from headwater.gateway.subscriptions.members.deliveries import delivered_record
from headwater.gateway.subscriptions.members.stream_member import delivery_of
from headwater.gateway.subscriptions.redrive_jobs import RedriveJobs
from headwater.model.position import Anchor, Position

MAX_BYTES = 4 * 1024 * 1024
HEADER_PREFIX = "headwater.dlq."


class DeadLetterApi:
    """Everything raises Problem, KafkaFailure."""

    def __init__(
        self,
        catalog: SubscriptionCatalog,
        *,
        admin: Admin,
        reader: RecordReader,
        redrives: RedriveJobs,
        budget: Budget,
    ) -> None:
        self._catalog = catalog
        self._admin = admin
        self._reader = reader
        self._redrives = redrives
        self._budget = budget

    async def newest(self, name: str, limit: int) -> Letters:
        topic = await self._topic_of(name)
        metadata = (await self._admin.metadata()).topics.get(topic)
        if metadata is None:
            return Letters(topic, [])  # the first dead letter creates it
        request = ReadRequest(
            topic=topic,
            partitions=tuple(sorted(metadata.partitions)),
            position=Position(Anchor.LAST, limit),
            limit=limit,
            max_bytes=MAX_BYTES,
        )
        with self._budget.hold(MAX_BYTES):
            result = await self._reader.read(request)
            return Letters(topic, [_dead_letter(message) for message in result.records[-limit:]])

    async def redrive(self, name: str, request: RedriveIn) -> Redriven:
        topic = await self._topic_of(name)
        if topic not in (await self._admin.metadata()).topics:
            return Redriven(
                topic=topic, redriven=0, targets={}, filtered=0, sent_before=0, gone=0, dry_run=request.dry_run
            )
        return await self._redrives.run(topic, request)

    async def _topic_of(self, name: str) -> str:
        info = await self._catalog.get(name)
        if not info.dead_letter_topic:
            raise Problem(409, "No dead letters", f"{name} has no dead-letter topic: only queues have one.")
        return info.dead_letter_topic


def _dead_letter(message: Message) -> Letter:
    delivery = delivery_of(message)
    about = {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode(errors="replace")
        for name, value in delivery.headers
        if name.startswith(HEADER_PREFIX)
    }
    origin = [about.get(part) for part in ("topic", "partition", "offset")]
    count = about.get("delivery-count", "")
    return Letter(
        record=delivered_record(delivery, None),
        origin="/".join(str(part) for part in origin) if None not in origin else None,
        group=about.get("group"),
        reason=about.get("reason"),
        delivery_count=int(count) if count.isascii() and count.isdigit() and len(count) < 10 else None,
    )
