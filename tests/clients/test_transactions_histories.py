"""Pipelines through all four clients at once, a broker that is killed under them, and a checker that knows neither."""

import random
import threading
from collections.abc import Callable

import pytest

from headwater.testing.oracles.checkers import Recorder, check
from tests.clients.every_transactor import TRANSACTORS
from tests.clients.judged import Client, Record
from tests.clients.recorded_pipeline import RecordedPipeline, RecordedReader
from tests.clients.restartable import restartable
from tests.clients.transacting import END, READ_COMMITTED, READ_UNCOMMITTED, Place, Transactor, seen_to_the_end
from tests.clients.with_confluent import ConfluentClient

SEED = 2026
INPUTS = 60
"""For each client."""
KILLS = 2
SOURCE, OUTPUT = "source", "output"


@pytest.mark.crash
def test_what_four_clients_saw_of_pipelines_and_kills_breaks_no_promise(
    ours_only: None, open_client: Callable[[str, str], Client], open_transactor: Callable[[str, str], Transactor]
) -> None:
    recorder, dice = Recorder(), random.Random(SEED)
    with restartable(durability="sync") as broker:
        client = open_client(ConfluentClient.name, broker.bootstrap)
        client.create_topic(SOURCE, len(TRANSACTORS))
        client.create_topic(OUTPUT, 2)
        sources = [(SOURCE, index) for index in range(len(TRANSACTORS))]
        outputs = [(OUTPUT, 0), (OUTPUT, 1)]
        feed(client, recorder, sources)
        transactors = [open_transactor(name, broker.bootstrap) for name in TRANSACTORS]
        pipelines = [
            RecordedPipeline(transactor, recorder, source, outputs, SEED)
            for transactor, source in zip(transactors, sources, strict=True)
        ]
        watcher = open_transactor("confluent", broker.bootstrap)
        readers = [
            RecordedReader(watcher, recorder, outputs, isolation) for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
        ]
        failures: list[BaseException] = []
        threads = [threading.Thread(target=run, args=(pipeline, failures)) for pipeline in pipelines]
        for thread in threads:
            thread.start()
        moments = sorted(dice.randrange(INPUTS * len(pipelines)) for _ in range(KILLS))
        try:
            while any(thread.is_alive() for thread in threads):
                for reader in readers:
                    reader.poll()
                if moments and sum(pipeline.committed for pipeline in pipelines) >= moments[0]:
                    moments.pop(0)
                    broker.kill()
                    broker.start()
        finally:
            for thread in threads:
                thread.join()
            for reader in readers:
                reader.close()
        assert failures == []
        assert moments == [], "the broker was killed as often as it should be"
        note_the_end(client, watcher, recorder, [*sources, *outputs], pipelines)
    assert [str(violation) for violation in check(recorder.history())] == [], f"seed {SEED}"


def run(pipeline: RecordedPipeline, failures: list[BaseException]) -> None:
    try:
        pipeline.run(INPUTS)
    except BaseException as failure:
        failures.append(failure)


def feed(client: Client, recorder: Recorder, places: list[Place]) -> None:
    for topic, partition in places:
        values = [b"%d of %d" % (number, partition) for number in range(INPUTS)]
        for value in values:
            recorder.send("feeder", topic, value, partition=partition)
        offsets = client.produce(topic, [Record(value, partition=partition) for value in values], idempotent=True)
        for value, offset in zip(values, offsets, strict=True):
            recorder.acknowledged(topic, value, partition, offset)


def note_the_end(
    client: Client,
    transactor: Transactor,
    recorder: Recorder,
    places: list[Place],
    pipelines: list[RecordedPipeline],
) -> None:
    """Everything that is there, behind which END is written, and where the groups are."""
    for topic, partition in places:
        client.produce(topic, [Record(END, partition=partition)])
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        found = seen_to_the_end(transactor.reader(places, isolation), places)
        for (topic, partition), records in found.items():
            rows = [(record.offset, record.value) for record in records[:-1]]
            recorder.final_read(isolation, topic, partition, rows, end=records[-1].offset)
    for pipeline in pipelines:
        asking = transactor.member(None, pipeline.group)
        try:
            recorder.offsets_read(
                "the end", pipeline.group, {pipeline.source: asking.committed(pipeline.source)}, is_final=True
            )
        finally:
            asking.close()
