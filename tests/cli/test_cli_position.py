"""Where to begin: the words, and the offsets that they mean."""

from concurrent.futures import Future
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headwater.cli.output import CommandFailed
from headwater.cli.position import known_offset_range, offset_range, parse_position
from headwater.model.position import Anchor, Position

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position(Anchor.BEGINNING)),
        ("end", Position(Anchor.END)),
        ("42", Position(Anchor.OFFSET, 42)),
        ("-10", Position(Anchor.LAST, 10)),
        ("15m", Position(Anchor.TIME, NOW_MS - 900_000)),
        ("1d", Position(Anchor.TIME, NOW_MS - 86_400_000)),
        ("999999999d", Position(Anchor.TIME, 0)),
        (
            "2026-01-31T12:00:00+00:00",
            Position(Anchor.TIME, int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)),
        ),
    ],
)
def test_a_position_is_a_word_an_offset_a_count_an_age_or_a_time(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


@pytest.mark.parametrize("text", ["", "middle", "1.5", "15 minutes", "--1", "9" * 30, "2026-13-01", "0x10"])
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(CommandFailed, match="is not a position") as refused:
        parse_position(text, NOW_MS)
    assert refused.value.exit_code == 2
    assert "beginning" in str(refused.value)


class Admin:
    """An admin client whose partitions answer ListOffsets with what they are given, one after another."""

    def __init__(self, answers: dict[int, list[int | KafkaError]]) -> None:
        self._answers = answers

    def list_offsets(self, asked: dict[TopicPartition, Any], request_timeout: float) -> dict[TopicPartition, Any]:
        return {place: self._answer(place.partition) for place in asked}

    def _answer(self, partition: int) -> "Future[Any]":
        future: Future[Any] = Future()
        answers = self._answers[partition]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, KafkaError):
            future.set_exception(KafkaException(answer))
        else:
            future.set_result(SimpleNamespace(offset=answer))
        return future


LEADERLESS = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
GONE = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_a_partition_that_gets_its_leader_now_is_asked_again() -> None:
    admin: Any = Admin({0: [4, 9], 1: [LEADERLESS, LEADERLESS, 0, LEADERLESS, 7]})
    assert offset_range(admin, PLACES) == {("t", 0): (4, 9), ("t", 1): (0, 7)}


@pytest.mark.parametrize("silent", [LEADERLESS, GONE])
def test_a_list_leaves_out_what_nobody_can_tell(monkeypatch: pytest.MonkeyPatch, silent: KafkaError) -> None:
    monkeypatch.setattr("headwater.cli.position.LEADER_WAIT_S", 0.0)
    admin: Any = Admin({0: [4, 9], 1: [silent]})
    assert known_offset_range(admin, PLACES) == {("t", 0): (4, 9)}


def test_who_needs_the_offset_hears_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.client.librdkafka.REQUEST_TIMEOUT_S", 0.0)
    admin: Any = Admin({0: [4, 9], 1: [LEADERLESS]})
    with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
        offset_range(admin, PLACES)


def test_other_errors_are_not_hidden() -> None:
    admin: Any = Admin({0: [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)], 1: [0]})
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        known_offset_range(admin, PLACES)
