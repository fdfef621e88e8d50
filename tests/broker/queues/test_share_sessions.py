"""Share sessions remember what clients name, whether it exists or not, and no more of it than there is room for."""

import uuid

import pytest

from headwater.broker.queues.share_sessions import ShareSessions
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId

TOPIC = uuid.uuid4()


def partitions(*indexes: int) -> list[PartitionId]:
    return [PartitionId(TOPIC, index) for index in indexes]


def refusal(sessions: ShareSessions, member: str, *indexes: int, forgotten: tuple[int, ...] = ()) -> ErrorCode:
    session = sessions.get("g", member)
    assert session is not None
    before = list(session.partitions)
    with pytest.raises(RequestError) as error:
        sessions.update(session, partitions(*indexes), partitions(*forgotten))
    assert list(session.partitions) == before, "nothing of it is remembered"
    return error.value.code


def test_a_session_takes_changes() -> None:
    sessions = ShareSessions(10)
    session = sessions.open("g", "m")
    sessions.update(session, partitions(1, 2, 3), [])
    sessions.update(session, partitions(2, 4, 5), partitions(1, 5, 9))
    assert list(session.partitions) == partitions(2, 3, 4)


def test_what_is_too_much_for_a_session_is_not_remembered() -> None:
    sessions = ShareSessions(10, max_of_session=3)
    session = sessions.open("g", "m")
    sessions.update(session, partitions(1, 2), [])
    assert refusal(sessions, "m", 3, 4) is ErrorCode.INVALID_REQUEST
    assert refusal(sessions, "m", 3, 4, 5, forgotten=(3, 9)) is ErrorCode.INVALID_REQUEST
    sessions.update(session, partitions(3, 4), partitions(1, 1))
    assert list(session.partitions) == partitions(2, 3, 4)


def test_all_sessions_together_have_a_limit_and_give_back_what_they_had() -> None:
    sessions = ShareSessions(10, max_of_session=3, max_partitions=4)
    first, second = sessions.open("g", "a"), sessions.open("g", "b")
    sessions.update(first, partitions(1, 2, 3), [])
    assert refusal(sessions, "b", 1, 2) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.update(second, partitions(1), [])
    sessions.update(first, partitions(4), partitions(1))
    sessions.close(first)
    sessions.update(second, partitions(2, 3), [])
    again = sessions.open("g", "b")
    sessions.update(again, partitions(1, 2, 3), [])
    assert sessions.partitions == 3
