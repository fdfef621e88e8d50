"""What the bench concludes from figures: ratios within rounds, judged by their median."""

import io

import pytest
from bench import tls_report
from bench.comparison import Comparison, Kind, compare, goals, show, summary
from bench.report import KAFKA, OS, SYNC
from bench.tls_report import IDLE_MEMORY, LOGINS, TLS
from bench.transaction_report import compared
from rich.console import Console

KINDS = (
    Kind("speed", "MB/s", True, {(OS, KAFKA): 1.0}),
    Kind("wait", "ms", False, {(OS, KAFKA): 0.8}),
    Kind("memory", "MB", False),
)
PAIR = (OS, KAFKA)


def comparison(*rounds: dict[str, dict[str, float]]) -> Comparison:
    return compare("Test", KINDS, (OS, SYNC), (KAFKA,), rounds)


def test_a_ratio_is_taken_within_its_round() -> None:
    found = comparison({KAFKA: {"speed": 10}, OS: {"speed": 20}}, {KAFKA: {"speed": 100}, OS: {"speed": 50}})
    assert found.ratios(PAIR, "speed") == [2.0, 0.5]


def test_the_median_of_the_ratios_is_judged_not_the_ratio_of_the_medians() -> None:
    found = comparison(
        {KAFKA: {"speed": 1}, OS: {"speed": 2}},
        {KAFKA: {"speed": 10}, OS: {"speed": 11}},
        {KAFKA: {"speed": 30}, OS: {"speed": 5}},
    )
    assert found.is_met(PAIR, "speed") is True


@pytest.mark.parametrize(("kafka", "ours", "met"), [(10.0, 8.0, True), (10.0, 8.1, False), (10.0, 0.0, True)])
def test_less_is_better_for_a_time(kafka: float, ours: float, met: bool) -> None:
    assert comparison({KAFKA: {"wait": kafka}, OS: {"wait": ours}}).is_met(PAIR, "wait") is met


def test_a_figure_without_a_target_is_not_judged() -> None:
    found = comparison({KAFKA: {"memory": 1.0}, OS: {"memory": 100.0}})
    assert found.is_met(PAIR, "memory") is None
    assert summary(found)["memory"]["ratios"]["headwater os / kafka"]["met"] is None


def test_a_figure_that_one_broker_lacks_has_no_ratio() -> None:
    found = comparison({KAFKA: {"speed": 1.0}, OS: {"speed": 1.0, "wait": 1.0}})
    assert found.names() == ["speed", "wait"]
    assert found.ratios(PAIR, "wait") == []
    assert summary(found)["wait"] == {"unit": "ms", "median": {OS: 1.0}, "ratios": {}}


def test_only_brokers_that_took_part_are_compared() -> None:
    assert comparison({KAFKA: {"speed": 1.0}, OS: {"speed": 1.0}}).pairs == [PAIR]
    assert comparison({OS: {"speed": 1.0}, SYNC: {"speed": 1.0}}).pairs == []


def test_the_tables_say_without_colours_what_reaches_its_target() -> None:
    page = io.StringIO()
    found = comparison({KAFKA: {"speed": 10, "wait": 10}, OS: {"speed": 12, "wait": 9}})
    show(found, Console(file=page, width=200), {"a remark": {KAFKA: "theirs", OS: "ours"}})
    assert "1.20x ≥ 1 ✓" in page.getvalue()
    assert "0.90x ≤ 0.8 ✗" in page.getvalue()
    assert "theirs" in page.getvalue()


def test_the_goals_of_transactions_name_the_figures_that_miss_them() -> None:
    kafka = {
        "commit p50, 1 record, Java": 10.0,
        "commit p99, 1 record, Java": 10.0,
        "produce, 1 partition, Java": 100.0,
    }
    ours = {"commit p50, 1 record, Java": 8.0, "commit p99, 1 record, Java": 9.0, "produce, 1 partition, Java": 100.0}
    assert list(goals(compared([{KAFKA: kafka, OS: ours}]))) == [
        "goal: produce ≥ 1 x kafka, headwater os: reached",
        "goal: commit ≤ 0.8 x kafka, headwater os: missed by 1 of 2: p99, 1 record, Java",
    ]


def test_figures_of_transactions_are_listed_by_kind() -> None:
    figures = {"CPU, commit, 1 record, Java": 1.0, "commit p50, 1 record, Java": 1.0, "produce, 1 partition, Java": 1.0}
    assert compared([{KAFKA: figures}]).names() == list(reversed(figures))


def test_a_bar_is_a_number_for_one_broker_and_judged_by_the_median() -> None:
    rounds = [{TLS: {LOGINS: rate, IDLE_MEMORY: 33.0}} for rate in (300.0, 500.0, 450.0)]
    said = list(tls_report.goals(tls_report.compared(rounds)))
    assert said == [
        "goal: logins ≥ 400 1/s, headwater SASL_SSL: 450.0, reached",
        "goal: memory, idle connection ≤ 32 KiB, headwater SASL_SSL: 33.0, missed",
    ]
