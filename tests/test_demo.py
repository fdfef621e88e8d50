"""The demo: its parts, and a short run of all of it from the command line."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from rich.console import Console

from headwater.demo.analytics import Minute, Results
from headwater.demo.background import Background
from headwater.demo.charts import bar_chart, line_chart, round_ticks
from headwater.demo.figures import Figures, rates
from headwater.demo.packers import DEAD_LETTERS, Packed, Packers
from headwater.demo.report import report
from headwater.demo.run import prepare
from headwater.demo.shop import CLICKS, ORDERS, PRODUCTS, STOLEN_CARDS, Event, Shop
from headwater.demo.traffic import ShopTraffic
from headwater.demo.view import screen, summary
from headwater.pipelines.run.progress import QueryProgress
from headwater.testing import Broker
from tests.support.eventually import eventually

TIMEOUT_S = 60.0
START_MS = 1_767_225_600_000


# The shop


def test_one_seed_gives_the_same_events_however_often_it_is_asked() -> None:
    def told(step_ms: int) -> list[Event]:
        shop = Shop(3, START_MS, sessions_per_s=10)
        return [event for at_ms in range(START_MS, START_MS + 60_001, step_ms) for event in shop.until(at_ms)]

    assert told(100) == told(20_000)
    assert told(100) != list(Shop(4, START_MS, sessions_per_s=10).until(START_MS + 60_000))


def test_events_come_in_order_and_orders_add_up() -> None:
    events = list(Shop(3, START_MS, sessions_per_s=20).until(START_MS + 300_000))
    assert [event.at_ms for event in events] == sorted(event.at_ms for event in events)
    orders = [json.loads(event.value) for event in events if event.topic == ORDERS]
    for order in orders:
        cents = sum(item["quantity"] * PRODUCTS[item["product"]] for item in order["items"])
        assert round(order["total"] * 100) == cents
    clicks = [event for event in events if event.topic == CLICKS]
    broken = [event for event in clicks if not event.value.endswith(b"}")]
    steps = Counter(json.loads(event.value)["action"] for event in clicks if event.value.endswith(b"}"))
    assert broken and steps["view"] > steps["cart"] > steps["checkout"] > steps["order"] > 0
    assert any(order["address"] is None for order in orders)
    assert any(order["card"] in STOLEN_CARDS for order in orders)


# Traffic and the queue, on a broker


def test_orders_are_packed_once_and_what_cannot_be_becomes_a_dead_letter(headwater: Broker) -> None:
    bootstrap = headwater.bootstrap
    prepare(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(60):
        order = {"id": f"o-{number}", "address": None if number % 20 == 7 else "1 Mill Lane"}
        producer.produce(ORDERS, json.dumps(order), f"o-{number}")
    producer.produce(ORDERS, b"no order at all", "x")
    assert producer.flush(TIMEOUT_S) == 0
    packers = Packers(bootstrap, count=2, seed=1)
    for background in packers.backgrounds:
        background.start()
    try:
        eventually(lambda: packers.packed.orders >= 57, "57 orders are packed")
        letters = consumed(bootstrap, DEAD_LETTERS, 4)
    finally:
        for background in packers.backgrounds:
            background.stop(TIMEOUT_S)
    for background in packers.backgrounds:
        background.raise_failure()
    assert packers.packed.orders == 57
    assert packers.packed.given_back >= 4 * 5, "each of the four was tried five times"
    assert sorted(letter.key() or b"" for letter in letters) == [b"o-27", b"o-47", b"o-7", b"x"]


def test_traffic_counts_what_the_broker_acknowledged(headwater: Broker) -> None:
    prepare(headwater.bootstrap)
    traffic = ShopTraffic(headwater.bootstrap, seed=1, sessions_per_s=200)
    traffic.background.start()
    eventually(lambda: traffic.sent[CLICKS] >= 100, "a hundred clicks are there")
    traffic.background.stop(TIMEOUT_S)
    traffic.background.raise_failure()
    consumer = Consumer({"bootstrap.servers": headwater.bootstrap, "group.id": "judge"})
    ends = [consumer.get_watermark_offsets(TopicPartition(CLICKS, index), timeout=TIMEOUT_S)[1] for index in range(2)]
    consumer.close()
    assert sum(ends) == traffic.sent[CLICKS]


def test_a_failed_loop_tells_why_and_a_stopped_one_ends() -> None:
    def fail(is_stopping: Any) -> None:
        raise ValueError("no more")

    failing = Background("failing", fail)
    failing.start()
    failing.stop(TIMEOUT_S)
    with pytest.raises(ValueError, match="no more"):
        failing.raise_failure()
    seen = threading.Event()

    def wait(is_stopping: Any) -> None:
        while not is_stopping():
            seen.wait(0.01)

    waiting = Background("waiting", wait)
    waiting.start()
    waiting.stop(TIMEOUT_S)
    waiting.raise_failure()
    Background("never started", wait).stop(TIMEOUT_S)


def consumed(bootstrap: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "auto.offset.reset": "earliest"})
    partitions = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions.partitions])
    messages: list[Message] = []
    try:

        def has_come() -> bool:
            messages.extend(consumer.consume(count, 0.2))
            return len(messages) >= count

        eventually(has_come, f"{count} in {topic}")
    finally:
        consumer.close()
    return messages


# What is shown


FIGURES = Figures(
    at_s=10.0,
    clicks=2_000,
    orders=30,
    packed=Packed(25, 7),
    queue_depth=4,
    dead_letters=1,
    queries=(
        QueryProgress("funnel", batch=3, rows=2_000, lag=0),
        QueryProgress("revenue_per_minute", batch=3, rows=30, lag=12),
    ),
    results=Results(
        (Minute("2026-01-01 10:00", 20, 1234.5), Minute("2026-01-01 10:01", 10, 99.0)),
        (("kettle", 9, 359.1), ("lamp <b>", 3, 73.5)),
        (("looked", 800), ("ordered", 30)),
        (("card-1", 6, 3, 5100.0, "many orders"),),
    ),
)  # fmt: skip
START = replace(FIGURES, at_s=1.0, clicks=200, orders=0, packed=Packed(), queries=(), results=Results())


def test_the_screen_and_the_line_show_the_figures() -> None:
    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        for history in ([], [START], [START, FIGURES]):
            console.print(screen("127.0.0.1:9092", "live traffic", history))
    shown = console.export_text()
    for text in ("Spark", "1,234.50 €", "kettle", "lamp <b>", "looked", "given back", "revenue_per_minute", "200"):
        assert text in shown
    assert "lag 12, counted 30 orders and 1,333.50 €, packed 25, waiting 4, dead letters 1" in summary(FIGURES)
    assert list(rates([START, FIGURES])) == pytest.approx([200.0, 30 / 9])


def test_everything_is_worked_off_only_when_it_was_counted_and_packed() -> None:
    worked_off = replace(
        FIGURES, queue_depth=0, packed=Packed(29, 7), queries=(QueryProgress("funnel", batch=3, rows=2_000, lag=0),)
    )
    assert worked_off.is_worked_off
    assert not replace(worked_off, orders=31).is_worked_off
    assert not replace(worked_off, queue_depth=1).is_worked_off
    assert not replace(worked_off, dead_letters=0).is_worked_off
    assert not replace(worked_off, queries=(QueryProgress("funnel", batch=3, rows=1_999, lag=0),)).is_worked_off
    assert not replace(worked_off, queries=()).is_worked_off
    assert worked_off.left_over == ""
    assert START.left_over == "When it was stopped, Spark had not started and 4 orders were not packed."
    assert replace(worked_off, orders=31).left_over == (
        "When it was stopped, Spark had counted 30 of 31 orders and 1 orders were not packed."
    )
    further = replace(worked_off, queries=(QueryProgress("funnel", batch=4, rows=2_000, lag=0),))
    assert further.progress != worked_off.progress == replace(worked_off, at_s=99.0).progress


class Page(HTMLParser):
    """Tags that could fetch something, and the texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fetches: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetches += [name for name, _ in attrs if name in ("src", "href", "action", "xlink:href")]
        if tag in ("script", "link", "iframe", "img"):
            self.fetches.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_report_draws_everything_and_fetches_nothing() -> None:
    page = report([START, FIGURES], "Made by a test.")
    parsed = Page(page)
    assert parsed.fetches == []
    assert not re.search(r"url\(|@import|https?://", page)
    for text in ("2,000", "1,333.50 €", "kettle", "lamp <b>", "card-1", "many orders", "Made by a test."):
        assert text in parsed.texts
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == 6
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    assert "before Spark had started" in report([START], "")
    assert "No card has passed a limit." in Page(report([START], "")).texts


def test_charts_keep_within_their_frame() -> None:
    drawn = ElementTree.fromstring(line_chart("lag", {"lag": [(0, 0), (5, 70), (10, 35)], "empty": []}))
    assert len([*ElementTree.fromstring(line_chart("lag", {"lag": [(3, 7)]})).iter("circle")]) == 1
    (line,) = drawn.iter("polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert all(0 <= x <= 560 and 0 <= y <= 220 for x, y in points)
    assert points[1][1] < points[2][1] < points[0][1], "more is further up"
    widths = [
        float(bar.attrib["width"]) for bar in ElementTree.fromstring(bar_chart("b", [("x", 4), ("y", 2)])).iter("rect")
    ]
    assert widths[0] == pytest.approx(2 * widths[1])
    ElementTree.fromstring(line_chart("nothing", {}))
    ElementTree.fromstring(bar_chart("nothing", []))


def test_the_axes_of_charts_have_round_numbers() -> None:
    assert round_ticks(0) == [0, 1]
    assert round_ticks(4) == [0, 1, 2, 3, 4]
    assert round_ticks(94) == [0, 20, 40, 60, 80, 100]
    assert round_ticks(201) == [0, 50, 100, 150, 200, 250]
    assert round_ticks(0.7) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    for most in (0.011, 1, 7, 99.9, 100, 12_345):
        ticks = round_ticks(most)
        assert len(ticks) <= 6 and ticks[-2] < most <= ticks[-1]
    texts = [text.text for text in ElementTree.fromstring(line_chart("run", {"x": [(94.0, 4.0)]})).iter("text")]
    assert texts[-7:-1] == ["4", "0 s", "20 s", "40 s", "60 s", "80 s"], "no time after the end"


def test_mistakes_on_the_command_line_are_told() -> None:
    command = [sys.executable, "-m", "headwater.demo", "--seconds", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2
    assert "0 is no number from 1 to 3600" in done.stderr


# All of it


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "is_interrupted",
    [pytest.param(False, marks=pytest.mark.slow, id="to the end"), pytest.param(True, id="interrupted")],
)
def test_a_short_run_leaves_a_report_and_nothing_else(tmp_path: Path, is_interrupted: bool) -> None:
    pytest.importorskip("pyspark")
    command = [sys.executable, "-m", "headwater.demo", "--seconds", "600" if is_interrupted else "20"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "HEADWATER_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        if is_interrupted:
            for line in demo.stdout:
                if " clicks" in line:
                    break
            demo.send_signal(signal.SIGINT)
        said = demo.stdout.read()
    assert demo.returncode == 0, said
    page = (tmp_path / "demo-report.html").read_text()
    if not is_interrupted:
        assert "have been counted by Spark" in page
    assert "Everything has stopped." in said
    assert not list(tmp_path.glob("headwater-*"))
    assert str(tmp_path) not in running_commands()


def running_commands() -> str:
    import psutil

    commands = []
    for process in psutil.process_iter():
        try:
            commands.append(" ".join([*process.cmdline(), process.cwd()]))
        except psutil.Error:
            continue
    return "\n".join(commands)
