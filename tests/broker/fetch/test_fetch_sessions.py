import pytest

from headwater.broker.fetch.fetch_sessions import FetchSessions
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.principal import Principal
from headwater.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchTopic, ForgottenTopic

ALICE, BOB = Principal.user("alice"), Principal.user("bob")


def request(
    session_id: int, epoch: int, partitions: dict[int, int] | None = None, forgotten: list[int] | None = None
) -> FetchRequest:
    asked = [FetchPartition(index, -1, offset, -1, -1, 100) for index, offset in (partitions or {}).items()]
    topics = [FetchTopic("t", None, asked)] if asked else []
    gone = [ForgottenTopic("t", None, forgotten)] if forgotten else []
    return FetchRequest(-1, 0, 1, 100, 0, session_id, epoch, topics, gone)


def offsets(session: object) -> dict[int, int]:
    return {partition.asked.index: partition.asked.fetch_offset for partition in session}  # type: ignore[attr-defined]


def test_a_session_remembers_partitions_and_takes_changes() -> None:
    sessions = FetchSessions()
    session, is_incremental = sessions.open(request(0, 0, {0: 5, 1: 6}), ALICE)
    assert session is not None and not is_incremental
    again, is_incremental = sessions.open(request(session.id, 1, {1: 9, 2: 1}, forgotten=[0]), ALICE)
    assert again is session and is_incremental
    assert offsets(session) == {1: 9, 2: 1}


def test_a_request_without_session_gets_none() -> None:
    assert FetchSessions().open(request(0, -1, {0: 5}), ALICE) == (None, False)


@pytest.mark.parametrize("epoch", [0, 2, 5])
def test_a_wrong_epoch_is_refused_unless_it_starts_anew(epoch: int) -> None:
    sessions = FetchSessions()
    session, _ = sessions.open(request(0, 0, {0: 5}), ALICE)
    assert session is not None
    if epoch == 0:
        new, _ = sessions.open(request(session.id, 0, {0: 5}), ALICE)
        assert new is not None and new is not session and len(sessions) == 1
        return
    with pytest.raises(RequestError) as error:
        sessions.open(request(session.id, epoch), ALICE)
    assert error.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_that_is_gone_is_not_found() -> None:
    sessions = FetchSessions(limit=1)
    first, _ = sessions.open(request(0, 0, {0: 5}), ALICE)
    sessions.open(request(0, 0, {0: 5}), ALICE)
    assert first is not None and len(sessions) == 1
    with pytest.raises(RequestError) as error:
        sessions.open(request(first.id, 1), ALICE)
    assert error.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_final_epoch_closes_the_session() -> None:
    sessions = FetchSessions()
    session, _ = sessions.open(request(0, 0, {0: 5}), ALICE)
    assert session is not None
    assert sessions.open(request(session.id, -1, {0: 5}), ALICE) == (None, False)
    assert len(sessions) == 0


def test_only_news_is_told_and_partitions_with_data_go_to_the_back() -> None:
    session, _ = FetchSessions().open(request(0, 0, {0: 5, 1: 6}), ALICE)
    assert session is not None
    first, second = list(session)
    quiet = FetchPartitionResult(0, high_watermark=5, log_start_offset=0)
    assert first.is_news(quiet)
    session.answered([(first, quiet)])
    assert not first.is_news(quiet)
    assert first.is_news(FetchPartitionResult(0, high_watermark=6, log_start_offset=0))
    assert first.is_news(FetchPartitionResult(0, ErrorCode.OFFSET_OUT_OF_RANGE, 5, 5, 0))
    full = FetchPartitionResult(0, high_watermark=5, log_start_offset=0, records=[b"x"], size_bytes=1)
    assert first.is_news(full)
    session.answered([(first, full)])
    assert list(session) == [second, first]


def test_another_user_neither_sees_nor_ends_a_session() -> None:
    sessions = FetchSessions()
    session, _ = sessions.open(request(0, 0, {0: 5}), ALICE)
    assert session is not None
    with pytest.raises(RequestError) as error:
        sessions.open(request(session.id, 1), BOB)
    assert error.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.open(request(session.id, -1), BOB)
    new, _ = sessions.open(request(session.id, 0, {0: 5}), BOB)
    assert new is not session and len(sessions) == 2
    assert sessions.open(request(session.id, 1), Principal.user("alice")) == (session, True), "on another connection"


def test_sessions_with_many_partitions_put_out_others_sooner() -> None:
    sessions = FetchSessions(max_partitions=10, max_of_session=6)
    first, _ = sessions.open(request(0, 0, dict.fromkeys(range(6), 0)), ALICE)
    second, _ = sessions.open(request(0, 0, dict.fromkeys(range(4), 0)), BOB)
    assert first is not None and second is not None and len(sessions) == 2
    grown, _ = sessions.open(request(second.id, 1, {4: 0}), BOB)
    assert grown is second and len(sessions) == 1
    with pytest.raises(RequestError) as error:
        sessions.open(request(first.id, 1), ALICE)
    assert error.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetch_of_more_partitions_than_a_session_has_gets_none_and_puts_out_no_other() -> None:
    sessions = FetchSessions(max_partitions=10, max_of_session=6)
    kept, _ = sessions.open(request(0, 0, {0: 0}), BOB)
    assert sessions.open(request(0, 0, dict.fromkeys(range(7), 0)), ALICE) == (None, False)
    assert kept is not None and sessions.open(request(kept.id, 1), BOB) == (kept, True)


def test_a_session_that_grows_beyond_its_limit_is_gone_with_its_partitions() -> None:
    sessions = FetchSessions(max_partitions=10, max_of_session=6)
    session, _ = sessions.open(request(0, 0, dict.fromkeys(range(6), 0)), ALICE)
    assert session is not None
    with pytest.raises(RequestError) as error:
        sessions.open(request(session.id, 1, {6: 0}), ALICE)
    assert error.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0 and sessions.partitions == 0


def test_partitions_are_counted_through_whatever_happens_to_their_sessions() -> None:
    sessions = FetchSessions(limit=2)
    first, _ = sessions.open(request(0, 0, {0: 0, 1: 0}), ALICE)
    assert first is not None
    sessions.open(request(first.id, 1, {2: 0}, forgotten=[0, 1]), ALICE)
    assert sessions.partitions == 1
    sessions.open(request(first.id, 0, {0: 0, 1: 0, 2: 0}), ALICE)
    for _ in range(3):
        sessions.open(request(0, 0, {0: 0, 1: 0}), BOB)
    assert (len(sessions), sessions.partitions) == (2, 4)
    last, _ = sessions.open(request(0, 0, {0: 0}), ALICE)
    assert last is not None and sessions.partitions == 3
    sessions.give_up(last)
    assert sessions.partitions == 2
