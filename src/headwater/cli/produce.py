"""`headwater produce`: lines, arguments or a file become records.

The exit code is 0 when all replicas have acknowledged every record, and 1 otherwise. Memory is bounded by librdkafka's
queue: when that is full, reading waits.
"""

import enum
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeAlias

import typer

from headwater.cli.brokers import Bootstrap, Brokers, ClientFile, brokers_of
from headwater.cli.client import Json, client_config, explain, kafka_problems, parse_assignments
from headwater.cli.output import CommandFailed, note, print_json, say, size

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_QUEUED_RECORDS = 100_000
MAX_QUEUED_KIB = 256 * 1024
MAX_REPORTED_FAILURES = 5
IN_BULK = {"enable.idempotence": True, "linger.ms": 5}
BY_HAND = {"enable.idempotence": False, "message.send.max.retries": 0, "linger.ms": 0}
"""Sent once; a failure is reported. An idempotent producer needs up to half a second to begin, long for a person."""
POLL_EVERY_RECORDS = 1_000
PROGRESS_AFTER_S = 1.0


class Compression(enum.StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


Record: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """The options that say what is written."""

    values: list[str]
    file: Path | None
    key: str | None
    key_separator: str | None
    empty_is_null: bool


@dataclass(frozen=True, slots=True)
class Target:
    topic: str
    partition: int
    """-1: the key's."""
    headers: Mapping[str, str]
    """Of every record."""


@dataclass(slots=True)
class DeliveryTally:
    """How many records were acknowledged and how many failed so far."""

    delivered: int = 0
    failed: int = 0
    sent_bytes: int = 0
    last_offsets: dict[int, int] = field(default_factory=dict)
    """The offset of the last acknowledged record, by partition."""
    failures: list["KafkaError"] = field(default_factory=list)

    def on_delivery(self, error: "KafkaError | None", message: "Message | None") -> None:
        if error is not None:
            self.failed += 1
            if len(self.failures) < MAX_REPORTED_FAILURES:
                self.failures.append(error)
            return
        assert message is not None, "what was delivered is a message"
        self.delivered += 1
        self.last_offsets[message.partition()] = message.offset()


app = typer.Typer(add_completion=False)


@app.command()
def produce(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Created if it does not exist and the broker allows it.")
    ],
    values: Annotated[
        list[str], typer.Argument(metavar="[VALUE]...", help="Records; read from stdin, one a line, if absent.")
    ] = [],  # noqa: B006
    file: Annotated[
        Path | None, typer.Option("--file", "-f", exists=True, dir_okay=False, help="Read lines from here.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="What parts key and value in a line.")
    ] = None,
    empty_is_null: Annotated[
        bool, typer.Option("--empty-is-null", help="An empty value is a tombstone; an empty key is none.")
    ] = False,
    header: Annotated[
        list[str], typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record.")
    ] = [],  # noqa: B006
    partition: Annotated[int, typer.Option("--partition", "-p", min=-1, help="-1 chooses by key.")] = -1,
    compression: Annotated[Compression, typer.Option("--compression", "-z")] = Compression.NONE,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds a record may take to be acknowledged.")] = 30.0,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Write records to a topic."""
    brokers = brokers_of(bootstrap, client_file)
    source = RecordSource(values, file, key, key_separator, empty_is_null)
    _check(source)
    target = Target(topic, partition, parse_assignments(header, "--header"))
    config = client_config(
        brokers,
        **{
            "acks": "all",
            "compression.type": compression.value,
            **(BY_HAND if values else IN_BULK),
            "message.timeout.ms": max(1, int(timeout_s * 1000)),
            "queue.buffering.max.messages": MAX_QUEUED_RECORDS,
            "queue.buffering.max.kbytes": MAX_QUEUED_KIB,
        },
    )
    began = time.monotonic()
    with kafka_problems(brokers):
        tally = _send_all(config, target, _records(source), timeout_s)
    _report(tally, target, brokers, time.monotonic() - began, json=json, one_line=bool(values))


def _check(source: RecordSource) -> None:
    """Raises CommandFailed for options that contradict each other."""
    if source.values and source.file:
        raise CommandFailed("VALUE and --file both name records to write.", "Give one of them.", exit_code=2)
    if source.key is not None and source.key_separator is not None:
        raise CommandFailed("--key and --key-separator both set the key.", "Give one of them.", exit_code=2)
    if source.key_separator == "":
        raise CommandFailed("--key-separator is empty.", r"For a tab, use --key-separator $'\t'.", exit_code=2)


def _records(source: RecordSource) -> Iterator[Record]:
    lines = _with_progress(_lines(source.values, source.file), source.file)
    fixed_key = source.key.encode() if source.key is not None else None
    separator = source.key_separator
    keyed = _split_all(lines, separator.encode()) if separator is not None else ((fixed_key, line) for line in lines)
    return _with_nulls(keyed) if source.empty_is_null else iter(keyed)


def _send_all(config: Mapping[str, Any], target: Target, records: Iterable[Record], timeout_s: float) -> DeliveryTally:
    """Return when every record was acknowledged or has failed."""
    from confluent_kafka import Producer

    tally = DeliveryTally()
    producer = Producer(config)
    try:
        _queue_all(producer, tally, target, records)
    finally:
        producer.flush(timeout_s + 1)
    tally.failed += len(producer)
    return tally


def _queue_all(producer: "Producer", tally: DeliveryTally, target: Target, records: Iterable[Record]) -> None:
    """Queue every record. A record that cannot be queued (too large, no such partition) counts as failed."""
    from confluent_kafka import KafkaException

    on_delivery = tally.on_delivery
    headers = [(name, value.encode()) for name, value in target.headers.items()]
    for number, (key, value) in enumerate(records, 1):
        while True:
            try:
                producer.produce(target.topic, value, key, target.partition, on_delivery, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                tally.on_delivery(error.args[0], None)
                break
        tally.sent_bytes += len(key or b"") + len(value or b"")
        if number % POLL_EVERY_RECORDS == 0:
            producer.poll(0)


def _report(
    tally: DeliveryTally, target: Target, brokers: Brokers, seconds: float, *, json: bool, one_line: bool
) -> None:
    """Raises CommandFailed if records were not acknowledged."""
    topic = target.topic
    if json:
        summary = {"topic": topic, "records": tally.delivered, "failed": tally.failed, "bytes": tally.sent_bytes}
        offsets = {str(index): offset for index, offset in sorted(tally.last_offsets.items())}
        print_json({**summary, "seconds": round(seconds, 3), "last_offsets": offsets})
    elif one_line and tally.delivered == 1:
        ((written_to, offset),) = tally.last_offsets.items()
        say(f"{topic} partition {written_to} offset {offset}")
    elif tally.delivered or not tally.failed:
        plural = "s" * (tally.delivered != 1)
        note(f"{tally.delivered} record{plural} to {topic}, {size(tally.sent_bytes)} in {seconds:.1f} s")
    if not tally.failed:
        return
    reasons = dict.fromkeys(
        str(explain(error, brokers, topic=topic, partition=target.partition)) for error in tally.failures
    )
    raise CommandFailed(f"{tally.failed} record{'s' * (tally.failed != 1)} not acknowledged.", " ".join(reasons))


def _split_all(lines: Iterable[bytes], separator: bytes) -> Iterator[Record]:
    for line in lines:
        key, found, value = line.partition(separator)
        if not found:
            shown = line[:60].decode(errors="replace")
            raise CommandFailed(
                f"This line has no key separator {separator.decode()!r}: {shown!r}.",
                "Only the lines before it were sent.",
            )
        yield key, value


def _with_nulls(records: Iterable[Record]) -> Iterator[Record]:
    for key, value in records:
        yield key or None, value or None


def _lines(values: list[str], file: Path | None) -> Iterator[bytes]:
    if values:
        yield from (value.encode() for value in values)
    elif file is not None:
        with file.open("rb") as source:
            yield from _lines_of(source)
    else:
        if sys.stdin.isatty():
            note("Type records, one a line; Ctrl-D ends.")
        yield from _lines_of(sys.stdin.buffer)


def _lines_of(source: BinaryIO) -> Iterator[bytes]:
    while line := source.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise CommandFailed(
                f"A line is longer than {size(MAX_LINE_BYTES)}.",
                "Each line is a record: does the input have line ends?",
            )
        yield line.removesuffix(b"\n")


def _with_progress(lines: Iterable[bytes], file: Path | None) -> Iterator[bytes]:
    """Shows a progress bar on a terminal once the work has taken a while."""
    if not sys.stderr.isatty() or (file is None and sys.stdin.isatty()):
        yield from lines
        return
    began = time.monotonic()
    bar: Any = None
    pending_bytes = pending_records = 0
    try:
        for line in lines:
            yield line
            pending_bytes += len(line) + 1
            pending_records += 1
            if pending_records % POLL_EVERY_RECORDS:
                continue
            if bar is None and time.monotonic() - began > PROGRESS_AFTER_S:
                bar = _progress_bar(file.stat().st_size if file else None)
            if bar is not None:
                bar.advance(bar.task_ids[0], pending_bytes)
                pending_bytes = 0
    finally:
        if bar is not None:
            bar.stop()


def _progress_bar(total_bytes: int | None) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task("produce", total=total_bytes)
    bar.start()
    return bar
