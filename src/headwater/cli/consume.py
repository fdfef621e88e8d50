"""`headwater consume`: records become lines on stdout.

Without a group it reads every partition from the position `--from`, and leaves no trace on the broker. With a group it
shares the partitions with the group's other members and commits what it has written to stdout, at least once: an offset
is committed only after the record's line was flushed.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.brokers import REQUEST_TIMEOUT_S, Bootstrap, Brokers, ClientFile, brokers_of
from headwater.cli.client import admin, client_config, explain, kafka_problems, topic_metadata
from headwater.cli.output import CommandFailed, note
from headwater.cli.position import HELP, offset_range, parse_position
from headwater.cli.record_format import DEFAULT_FORMAT, Render, as_json, compile_format
from headwater.cli.topic import chosen_partitions
from headwater.client.librdkafka import poll_some
from headwater.model.position import Anchor, Position, offset_in

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

MAX_RECORDS_PER_POLL = 1_000
FOLLOWING_WAIT_MS = 500
LEAVING_WAIT_MS = 10
FULL_QUEUE_WAIT_MS = 10
OFFSET_TAIL_BASE = -2000
"""librdkafka's logical offsets "n before the end" are counted down from here."""


app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeArguments:
    """The command line of `headwater consume`."""

    topic: str
    group: str | None
    start: Position | None
    partitions: list[int]
    """Empty: all of them."""
    max_records: int | None
    follow: bool
    brokers: Brokers


@app.command()
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.")],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this group, and commit.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help=f"Where to begin: {HELP}.", show_default="beginning")
    ] = None,
    partition: Annotated[
        list[int], typer.Option("--partition", "-p", help="Only this partition. May be repeated.")
    ] = [],  # noqa: B006
    max_records: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after so many records.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--exit-at-end", "-f/-e", help="At the end: wait for more, or stop.")
    ] = True,
    format: Annotated[
        str, typer.Option("--format", help="%k key, %v value, %t topic, %p partition, %o offset, %T time, %h headers.")
    ] = DEFAULT_FORMAT,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Read records from a topic. Ctrl-C ends."""
    brokers = brokers_of(bootstrap, client_file)
    render = as_json if json else compile_format(format)
    position = parse_position(start, time.time_ns() // 1_000_000) if start is not None else None
    if group is not None and partition:
        raise CommandFailed("A group assigns partitions itself.", "Leave out --partition or --group.", exit_code=2)
    if group is not None and position is not None and position.anchor not in (Anchor.BEGINNING, Anchor.END):
        raise CommandFailed(
            f"A group goes on at its committed offset, so --from {start} has no effect.",
            f"Move the group first: `headwater group reset-offsets {group} --topic {topic} --to {start}`.",
            exit_code=2,
        )
    arguments = ConsumeArguments(
        topic=topic,
        group=group,
        start=position,
        partitions=partition,
        max_records=max_records,
        follow=follow,
        brokers=brokers,
    )
    config = client_config(brokers, **_consumer_config(arguments))
    with kafka_problems(brokers):
        _read(config, arguments, render)


def _read(config: dict[str, Any], arguments: ConsumeArguments, render: Render) -> None:
    from confluent_kafka import Consumer

    topic = arguments.topic
    consumer = Consumer(config)
    try:
        metadata = topic_metadata(consumer, topic, arguments.brokers)
        if arguments.group is not None:
            consumer.subscribe([topic])
        else:
            indexes = chosen_partitions(metadata, arguments.partitions)
            start = arguments.start or Position(Anchor.BEGINNING)
            consumer.assign(_starting_offsets(consumer, topic, indexes, start, arguments.brokers))
        if arguments.follow and sys.stdout.isatty():
            note(f"Reading {topic}; Ctrl-C ends.")
        with stop_signals() as is_stopping:
            for records in _polls(consumer, arguments, is_stopping):
                _write(records, render)
                if arguments.group is not None:
                    for record in records:
                        consumer.store_offsets(record)
    finally:
        consumer.close()


@contextmanager
def stop_signals() -> "Iterator[Callable[[], bool]]":
    """Gives a function that says whether SIGINT or SIGTERM came. Reading then ends between two polls, so that what was
    written is also committed and the member leaves its group. A second signal interrupts at once."""
    came = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            signal.default_int_handler(number, frame)
        came = True

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _consumer_config(arguments: ConsumeArguments) -> dict[str, Any]:
    group, start = arguments.group, arguments.start
    # Where a group without a committed offset begins. Without a group the offsets are given; an offset that retention
    # deletes while it is read is replaced by the oldest one that is left.
    at_end = group is not None and start is not None and start.anchor is Anchor.END
    return {
        # librdkafka wants a group even for reading without one; it is never joined and nothing is committed to it.
        "group.id": group if group is not None else "headwater-cli",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # The end of a partition is reported when a fetch waited this long in vain.
        "fetch.wait.max.ms": FOLLOWING_WAIT_MS if arguments.follow else LEAVING_WAIT_MS,
        # When its queue is full, librdkafka stops fetching for a second by default.
        "fetch.queue.backoff.ms": FULL_QUEUE_WAIT_MS,
        "auto.offset.reset": "latest" if at_end else "earliest",
        "allow.auto.create.topics": False,
    }


def _starting_offsets(
    consumer: "Consumer", topic: str, indexes: list[int], position: Position, brokers: Brokers
) -> "list[TopicPartition]":
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    if position.anchor is Anchor.TIME:
        times = [TopicPartition(topic, index, position.value) for index in indexes]
        partitions = list(consumer.offsets_for_times(times, timeout=REQUEST_TIMEOUT_S))
        for partition in partitions:
            if partition.error is not None:
                raise explain(partition.error, brokers, topic=topic)
        return partitions
    if position.anchor is Anchor.OFFSET:
        return _at_offset([TopicPartition(topic, index) for index in indexes], position, brokers)
    offset = {
        Anchor.BEGINNING: OFFSET_BEGINNING,
        Anchor.END: OFFSET_END,
        Anchor.LAST: OFFSET_TAIL_BASE - position.value,
    }[position.anchor]
    return [TopicPartition(topic, index, offset) for index in indexes]


def _at_offset(partitions: "list[TopicPartition]", position: Position, brokers: Brokers) -> "list[TopicPartition]":
    """One offset in each partition, limited to the offsets that the partition has: a consumer that asks for an offset
    outside of them is sent to the beginning, even when it asked for one past the end."""
    from confluent_kafka import TopicPartition

    with admin(brokers) as client:
        held = offset_range(client, partitions)
    shorter = [end for _, end in held.values() if end < position.value]
    if shorter:
        which = f"{len(shorter)} of {len(held)} partitions end" if len(held) > 1 else "The partition ends"
        note(
            f"{which} before offset {position.value}{f', at {max(shorter)}' if len(shorter) == len(held) else ''}: "
            "reading begins at the end."
        )
    return [TopicPartition(*key, offset_in(position, *ends, None)) for key, ends in held.items()]


def _polls(
    consumer: "Consumer", arguments: ConsumeArguments, is_stopping: Callable[[], bool]
) -> "Iterator[list[Message]]":
    """Records as they come, until there are `max_records`, or, without --follow, all partitions are at their end."""
    from confluent_kafka import KafkaError

    left = sys.maxsize if arguments.max_records is None else arguments.max_records
    at_end: set[int] = set()
    while left and not is_stopping():
        records: list[Message] = []
        for message in poll_some(consumer, min(left, MAX_RECORDS_PER_POLL)):
            error = message.error()
            if error is None:
                records.append(message)
                at_end.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            elif not error.retriable() and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                raise explain(error, arguments.brokers, topic=arguments.topic, group=arguments.group or "")
        if records:
            left -= len(records)
            yield records
        if not arguments.follow:
            assigned = {each.partition for each in consumer.assignment()}
            if assigned and assigned <= at_end:
                return


def _write(records: "list[Message]", render: Render) -> None:
    sys.stdout.buffer.write(b"".join(map(render, records)))
    sys.stdout.buffer.flush()
