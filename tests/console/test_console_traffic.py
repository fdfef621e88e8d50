"""The broker's counters, read from its metrics page."""

import pytest

from headwater.broker.metrics.metrics import Metrics
from headwater.broker.metrics.metrics_page import families, page
from headwater.gateway.console.traffic import MAX_TOPICS, traffic_of
from headwater.gateway.http.problems import Problem


def told(metrics: Metrics) -> list[str]:
    return page(families(metrics)).decode().splitlines()


def test_a_page_of_a_broker_gives_each_topic_its_counters() -> None:
    metrics = Metrics()
    metrics.produced("orders", 5, 1, 700)
    metrics.fetched('odd"} 1\nheadwater_connections 99', 3)
    metrics.watch("queue_leases", "Lent.", ("group", "topic", "partition"), lambda: [(("g", "orders", "2"), 4)])
    found = traffic_of(told(metrics))
    orders, odd = found.topics
    assert (orders.name, orders.produced_records, orders.produced_bytes, orders.fetched_bytes) == ("orders", 5, 700, 0)
    assert odd.name.startswith('odd"') and odd.fetched_bytes == 3
    (lease,) = found.leases
    assert (lease.group, lease.topic, lease.partition, lease.records) == ("g", "orders", 2, 4)


def test_more_topics_than_there_is_room_for_are_counted() -> None:
    lines = [f'headwater_produced_bytes_total{{topic="t{number}"}} 1.0' for number in range(MAX_TOPICS + 7)]
    found = traffic_of(lines)
    assert (len(found.topics), found.left_out) == (MAX_TOPICS, 7)


@pytest.mark.parametrize(
    "line",
    [
        "headwater_produced_bytes_total{topic=",
        'headwater_produced_bytes_total{topic="t"} many',
        'headwater_produced_bytes_total{topic="t"} NaN',
        'headwater_produced_bytes_total{topic="t"} +Inf',
        'headwater_queue_leases{topic="t"} 1',
        'headwater_queue_leases{topic="t",group="g",partition="x"} 1',
    ],
)
def test_a_page_that_makes_no_sense_is_a_problem_and_no_crash(line: str) -> None:
    with pytest.raises(Problem) as problem:
        traffic_of([line])
    assert problem.value.status == 503


def test_a_page_about_other_things_is_empty() -> None:
    found = traffic_of(["# HELP x y", "something 1", ""])
    assert (found.topics, found.leases, found.left_out) == ([], [], 0)
