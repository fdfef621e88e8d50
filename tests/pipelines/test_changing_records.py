"""Records that change their shape while a pipeline runs, or have none at all: what fits goes on, what does not is a
dead letter with the reason, and the query lives."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.testing import Broker
from tests.pipelines.reading_back import read_back
from tests.pipelines.running import RunningPipeline
from tests.pipelines.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

PIPELINE = """
trigger = "50ms"
[source.orders]
kind = "topic"
topic = "{orders}"
from = "earliest"
[step.valid]
kind = "parse"
input = "orders"
format = "json"
schema = "id int not null, amount double, at timestamp"
keep = ["offset"]
dead_letters = "{bad}"
[sink.out]
kind = "topic"
input = "valid"
topic = "{out}"
"""

FITTING = [
    b'{"id": 1, "amount": 1.5, "at": "2026-01-01T00:00:00Z"}',
    b'{"id": 2, "amount": 2, "coupon": "a new field", "items": [{"sku": 1}]}',
    b'{"id": 3}',
    b'{"id": 4, "amount": null}',
    b' \n{"id": 5, "amount": -0.0}\n ',
    b'{"id": 6, "name": "' + b"x" * 200_000 + b'"}',
    b'{"id": 7} and more',  # Spark reads one value, and nothing behind it
]
UNFIT = {
    b'{"amount": 4}': "id is missing.",
    b'{"id": null}': "id is missing.",
    b'{"id": "five"}': 'id is "five", which is no int.',
    b'{"id": 6.5}': "id is 6.5, which is no int.",
    b'{"id": true}': "id is true, which is no int.",
    b'{"id": 99999999999}': "It does not fit id int, amount double, at timestamp.",
    b'{"id": 7, "amount": {"value": 7, "currency": "EUR"}}': (
        'amount is {"value": 7, "currency": "EUR"}, which is no double.'
    ),
    b'{"id": 8, "at": "yesterday"}': 'at is "yesterday", which is no timestamp.',
    b"": "It is no JSON",
    b"nonsense": "It is no JSON",
    b'{"id": 9': "It is no JSON",
    b'[{"id": 11}]': "It is JSON, but no object",
    b"12": "It is JSON, but no object",
    b"null": "It is JSON, but no object",
    b"\xff\xfe\x00": "It is no UTF-8 (byte 0).",
    '{"id": 13}'.encode("utf-16"): "It is no UTF-8 (byte 0).",
    b'{"id": 14, "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}": "It ",
}


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with Broker(subprocess=True) as broker:
        yield Topics(broker.bootstrap)


def test_records_of_another_shape_go_on_or_become_dead_letters_and_the_query_lives(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    orders, out, bad = topics.create(), topics.create(), topics.create()
    file = tmp_path / "orders.toml"
    file.write_text(PIPELINE.format(orders=orders, out=out, bad=bad))
    sent: list[bytes | None] = [FITTING[0]]
    topics.produce(orders, sent)

    def arrived() -> dict[int, dict[str, object]]:
        rows = [json.loads(message.value() or b"") for message in read_back(topics.bootstrap, out)]
        return {row["offset"]: row for row in rows}

    def letters() -> dict[int, tuple[bytes | None, str]]:
        found = {}
        for message in read_back(topics.bootstrap, bad):
            about = dict(message.headers() or [])
            reason = (about["headwater.dlq.reason"] or b"").decode()
            found[int(about["headwater.dlq.offset"] or b"")] = (message.value(), reason)
        return found

    with RunningPipeline(spark, file, topics.bootstrap) as pipeline:
        pipeline.until(lambda: len(arrived()) == 1, "records as they were meant to be")
        for more in ([*FITTING[1:], None], list(UNFIT), [FITTING[0]]):
            topics.produce(orders, more)
            sent += more
        pipeline.until(lambda: len(arrived()) + len(letters()) >= len(sent), "all records are somewhere")
        assert pipeline.interruptions == []
    for offset, value in enumerate(sent):
        is_fit = value in FITTING
        assert (offset in arrived(), offset in letters()) == (is_fit, not is_fit), value
    assert [row.get("amount") for _, row in sorted(arrived().items())] == [1.5, 2.0, None, None, -0.0, None, None, 1.5]
    for value, reason in letters().values():
        expected = UNFIT[value] if value is not None else "There is no value, and id must be there."
        assert reason.startswith(expected), value
    assert len(read_back(topics.bootstrap, out)) + len(read_back(topics.bootstrap, bad)) == len(sent), "each once"
