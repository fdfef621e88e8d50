"""`make bench-spark`: Headwater's data source and Spark's own Kafka connector on one broker, in this run, taking turns.

Each turn is a fresh Spark, warmed up; the order of turns rotates from round to round. Read are topics that were filled
before, into Spark's noop sink; written are rows that Spark makes up; copied is a topic at a steady rate."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count

from bench import bars, load, spark_growth, spark_report
from bench.drain import WrongCount
from bench.headwater import HeadwaterServer
from bench.measures import Figures, create_topic, delete_topic
from bench.report import circumstances
from bench.spark_contenders import CONTENDERS, COPIERS, READERS, WRITERS, connector_jars, versions
from bench.spark_latency import Pace, latency
from bench.spark_process import Others, SparkProcess
from bench.spark_report import (
    BATCH,
    LATENCY,
    MICRO_BATCH,
    OTHERS,
    STREAM,
    WRITE,
    by_kind,
    case,
    memory_figures,
    rate_figures,
)
from bench.turns import Say, taking_turns
from rich.console import Console

SIZES_BYTES = (100, 1024)
PARTITION_COUNTS = (1, 4, 16)
SINK_PARTITIONS = 4
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class Volume:
    rounds: int
    read_rows: dict[int, int]
    """by record size, of each topic"""
    written_rows: dict[int, int]
    """by record size; a transaction passes through the driver, whose heap is that of Spark's default"""
    warm_ups: int
    """how often each kind of query runs before it is measured"""
    pace: Pace


FULL = Volume(5, {100: 3_000_000, 1024: 600_000}, {100: 1_500_000, 1024: 200_000}, 3, Pace(500, 15.0, 20.0))
QUICK = Volume(2, {100: 1_000_000, 1024: 200_000}, {100: 600_000, 1024: 100_000}, 2, Pace(500, 10.0, 10.0))

Measure = Callable[[Volume, HeadwaterServer, SparkProcess, Say], Figures]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="smaller volumes and fewer rounds")
    options.add_argument("--rounds", type=int, help="instead of the default number of rounds")
    options.add_argument("--only", choices=CONTENDERS, action="append", help="these alone (may be repeated)")
    options.add_argument("--part", choices=PARTS, action="append", help="these parts alone (may be repeated)")
    chosen = options.parse_args()
    volume, parts = QUICK if chosen.quick else FULL, {name: PARTS[name] for name in chosen.part or PARTS}
    names = chosen.only or list(CONTENDERS)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print("building the load generator, resolving Spark's Kafka connector")
    load.build()
    about = {**circumstances(), **versions(), "load_before": os.getloadavg()}
    console.print(f"load of the machine before: {about['load_before'][0]:.1f} on {about['cores']} cores")
    rounds = run(volume, parts, names, chosen.rounds or volume.rounds, console)
    found = spark_report.compared(rounds)
    for part in found:
        spark_report.show(part, console)
    path = spark_report.save(found, {**about, "volume": asdict(volume)})
    written = [path, bars.draw(found, path, spark_report.NOT_DRAWN, spark_report.COLOURS)]
    if "read" in rounds:
        written.append(spark_growth.draw(rounds["read"], PARTITION_COUNTS, SIZES_BYTES, path))
    for one in written:
        console.print(f"wrote {one}")


def run(
    volume: Volume,
    parts: Mapping[str, tuple[Sequence[str], Measure]],
    names: Sequence[str],
    rounds: int,
    console: Console,
) -> dict[str, list[dict[str, Figures]]]:
    """By part, round and contender."""
    jars = connector_jars() if any(CONTENDERS[name].needs_jars for name in names) else []
    takers = {part: [name for name in having if name in names] for part, (having, _) in parts.items()}
    found: dict[str, list[dict[str, Figures]]] = {}
    with HeadwaterServer("os") as broker, taking_turns(rounds * sum(map(len, takers.values())), console) as turns:
        if takers.get("read"):
            fill(volume, broker)
        for part, (_, measure) in parts.items():
            makers = {name: partial(SparkProcess, CONTENDERS[name], jars) for name in takers[part]}
            if makers:
                found[part] = turns.rounds(f"{part}, round", rounds, makers, partial(one_turn, volume, broker, measure))
    return found


def fill(volume: Volume, broker: HeadwaterServer) -> None:
    for size_bytes in SIZES_BYTES:
        for partitions in PARTITION_COUNTS:
            create_topic(broker, _topic(size_bytes, partitions), partitions)
            load.produce(broker.bootstrap, _topic(size_bytes, partitions), volume.read_rows[size_bytes], size_bytes)


def one_turn(volume: Volume, broker: HeadwaterServer, measure: Measure, spark: SparkProcess, say: Say) -> Figures:
    spark.start()
    others = Others()
    figures = measure(volume, broker, spark, say)
    return {**figures, OTHERS: others.percent()}


def read(volume: Volume, broker: HeadwaterServer, spark: SparkProcess, say: Say) -> Figures:
    say("warming up")
    for _ in range(volume.warm_ups):
        for size_bytes in SIZES_BYTES:
            for how in READS:
                _read(volume, broker, spark, how, size_bytes, max(PARTITION_COUNTS))
    figures: Figures = {}
    with spark.memory() as peak:
        for how in READS:
            for size_bytes in SIZES_BYTES:
                for partitions in PARTITION_COUNTS:
                    say(case(how, size_bytes, partitions))
                    figures |= _read(volume, broker, spark, how, size_bytes, partitions)
    return {**by_kind(figures), **memory_figures("reading", peak)}


def write(volume: Volume, broker: HeadwaterServer, spark: SparkProcess, say: Say) -> Figures:
    say("warming up")
    for _ in range(volume.warm_ups):
        for size_bytes in SIZES_BYTES:
            _write(volume, broker, spark, size_bytes)
    figures: Figures = {}
    with spark.memory() as peak:
        for size_bytes in SIZES_BYTES:
            say(case(WRITE, size_bytes))
            figures |= _write(volume, broker, spark, size_bytes)
    return {**by_kind(figures), **memory_figures("writing", peak)}


def copy(volume: Volume, broker: HeadwaterServer, spark: SparkProcess, say: Say) -> Figures:
    number = next(_NUMBERS)
    contender, from_, to = spark.contender, f"copied-{number}", f"copy-{number}"
    for topic in (from_, to):
        create_topic(broker, topic, SINK_PARTITIONS)
    reading = {**_reach(broker), "subscribe": from_, **contender.reading}
    writing = {**_reach(broker), "topic": to, **contender.writing}
    spark.ask("start_copy", format=contender.format, reading=reading, writing=writing)
    say(f"{volume.pace.records_per_s} records/s")
    with spark.memory() as peak:
        found = latency(broker.bootstrap, from_, to, SINK_PARTITIONS, volume.pace)
    batch_ms = spark.ask("stop_copy")["batch_ms"]
    for topic in (from_, to):
        delete_topic(broker, topic)
    figures = {f"{LATENCY} p50": found.p50_ms, f"{LATENCY} p99": found.p99_ms, MICRO_BATCH: batch_ms}
    return {**figures, **memory_figures("copying", peak)}


READS = {BATCH: "read_batch", STREAM: "read_stream"}
PARTS: dict[str, tuple[Sequence[str], Measure]] = {
    "read": (READERS, read),
    "write": (WRITERS, write),
    "copy": (COPIERS, copy),
}


def _read(
    volume: Volume, broker: HeadwaterServer, spark: SparkProcess, how: str, size_bytes: int, partitions: int
) -> Figures:
    """Raises WrongCount unless every record was read once."""
    topic, contender = _topic(size_bytes, partitions), spark.contender
    options = {**_reach(broker), "subscribe": topic, **contender.reading}
    with spark.cpu() as used:
        answer = spark.ask(READS[how], format=contender.format, options=options)
    if answer["rows"] != volume.read_rows[size_bytes]:
        raise WrongCount(f"{contender.name}, {how}: {answer['rows']} of {volume.read_rows[size_bytes]} rows of {topic}")
    return rate_figures(case(how, size_bytes, partitions), answer, used)


def _write(volume: Volume, broker: HeadwaterServer, spark: SparkProcess, size_bytes: int) -> Figures:
    """Raises WrongCount unless every row is in the topic once."""
    # A new name each time: a Java producer that Spark keeps would have a topic made again that it has written to.
    topic, rows, contender = f"written-{next(_NUMBERS)}", volume.written_rows[size_bytes], spark.contender
    create_topic(broker, topic, SINK_PARTITIONS)
    options = {**_reach(broker), "topic": topic, **contender.writing}
    with spark.cpu() as used:
        answer = spark.ask("write_batch", format=contender.format, options=options, rows=rows, size_bytes=size_bytes)
    about: dict[str, str | int] = {"bootstrap": broker.bootstrap, "topic": topic, "partitions": SINK_PARTITIONS}
    there = load.ask("count", **about, messages=rows)["messages"]
    if there != rows:
        raise WrongCount(f"{contender.name}: {there} records came of {rows} rows")
    delete_topic(broker, topic)
    return rate_figures(case(WRITE, size_bytes), answer, used)


def _topic(size_bytes: int, partitions: int) -> str:
    return f"read-{size_bytes}-{partitions}"


def _reach(broker: HeadwaterServer) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap}


if __name__ == "__main__":
    main()
