"""Share groups: heartbeats in, epochs and assignments out."""

import uuid

import pytest

from headwater.groups.departures import DepartureReason
from headwater.groups.effects import GroupEffects, ShareHeartbeatAnswer
from headwater.groups.event_records import decode, encode
from headwater.groups.events import Event
from headwater.groups.rebalance import GroupState
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.groups.share import LEAVE_EPOCH, ShareHeartbeat, ShareSettings
from headwater.groups.topics import TopicTable
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment

SETTINGS = ShareSettings(session_timeout_ms=10_000, heartbeat_interval_ms=1_000, max_members=3)


class Shared:
    """A shard with one share group, its topics, and its log."""

    def __init__(self) -> None:
        self.shard = GroupShard(GroupSettings(), TopicTable())
        self.topics: dict[str, tuple[uuid.UUID, int]] = {"t": (uuid.UUID(int=1), 2)}
        self.log: list[Event] = []
        self.now_ms = 1_000

    def beat(self, member: str, epoch: int, *topics: str, group: str = "g") -> ShareHeartbeatAnswer:
        request = ShareHeartbeat(member, epoch, None, topics or None, "client", "host")
        effects = self.shard.share_heartbeat(group, request, SETTINGS, self.topics.get, object(), self._now())
        return self._took(effects)

    def join(self, member: str, *topics: str) -> ShareHeartbeatAnswer:
        return self.beat(member, 0, *(topics or ("t",)))

    def tick(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.log += self.shard.tick(self._now()).events

    def restarted(self) -> "Shared":
        after = Shared()
        after.log = self.log
        for event in self.log:
            again = decode(*encode(event))
            assert again == event
            after.shard.apply(again)
        after.shard.resume(after._now())
        return after

    def _took(self, effects: GroupEffects) -> ShareHeartbeatAnswer:
        self.log += effects.events
        (reply,) = effects.replies
        assert isinstance(reply.answer, ShareHeartbeatAnswer)
        return reply.answer

    def _now(self) -> Moment:
        return Moment(1_700_000_000_000 + self.now_ms, self.now_ms)


def refused(code: ErrorCode) -> "pytest.RaisesExc[RequestError]":
    return pytest.raises(RequestError, check=lambda error: error.code is code)


def test_the_first_member_reads_everything() -> None:
    answer = Shared().join("a")
    assert answer == ShareHeartbeatAnswer("a", 1, 1_000, frozenset({("t", 0), ("t", 1)}))


def test_a_member_learns_of_another_with_its_next_heartbeat() -> None:
    group = Shared()
    group.join("a")
    group.join("b")
    answer = group.beat("a", 1)
    assert answer.epoch == 2
    assert answer.assignment is not None and len(answer.assignment) == 1
    assert group.beat("a", 2).assignment is None


def test_the_epoch_before_is_still_good_for_an_answer_that_was_lost() -> None:
    group = Shared()
    group.join("a")
    group.join("b")
    group.beat("a", 1)
    assert group.beat("a", 1).assignment is not None


def test_any_other_epoch_is_fenced() -> None:
    group = Shared()
    group.join("a")
    for epoch in (2, 99):
        with refused(ErrorCode.FENCED_MEMBER_EPOCH):
            group.beat("a", epoch)


def test_a_member_may_join_again_with_epoch_zero() -> None:
    group = Shared()
    group.join("a")
    assert group.join("a").epoch == 1


def test_unknown_groups_and_members_are_told_apart() -> None:
    group = Shared()
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        group.beat("a", 1)
    group.join("a")
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        group.beat("b", 1)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        group.beat("b", LEAVE_EPOCH)


@pytest.mark.parametrize(
    "request_",
    [
        ShareHeartbeat("", 0, None, ("t",), "", ""),
        ShareHeartbeat("a", -2, None, ("t",), "", ""),
        ShareHeartbeat("a", 0, None, None, "", ""),
        ShareHeartbeat("a", 0, None, (), "", ""),
        ShareHeartbeat("a", 0, " ", ("t",), "", ""),
        ShareHeartbeat("a", 0, None, ("x" * 256,), "", ""),
        ShareHeartbeat("a", 0, None, ("t",) * 1_001, "", ""),
    ],
)
def test_nonsense_is_an_invalid_request(request_: ShareHeartbeat) -> None:
    with refused(ErrorCode.INVALID_REQUEST):
        request_.check()


def test_a_full_group_takes_nobody() -> None:
    group = Shared()
    for member in "abc":
        group.join(member)
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        group.join("d")


def test_a_group_that_refused_its_first_member_does_not_exist() -> None:
    group = Shared()
    with refused(ErrorCode.INVALID_REQUEST):
        group.beat("a", 0)
    assert list(group.shard.listed()) == []


def test_leaving_gives_the_partitions_to_those_who_stay() -> None:
    group = Shared()
    group.join("a")
    group.join("b")
    assert group.beat("b", LEAVE_EPOCH).epoch == LEAVE_EPOCH
    assert group.shard.share.take_departed() == [("g", "b")]
    assert group.beat("a", 1).assignment == frozenset({("t", 0), ("t", 1)})


def test_a_silent_member_is_removed() -> None:
    group = Shared()
    group.join("a")
    group.join("b")
    group.now_ms += 9_999
    group.beat("b", 2)
    group.tick(1)
    assert group.shard.share.take_departed() == [("g", "a")]
    assert group.beat("b", 2).assignment == frozenset({("t", 0), ("t", 1)})
    group.tick(10_000)
    share = group.shard.share.get("g")
    assert share is not None and share.state is GroupState.EMPTY


def test_a_group_remembers_who_left_and_why() -> None:
    group = Shared()
    for member in "abc":
        group.join(member)
    group.beat("c", LEAVE_EPOCH)
    group.now_ms += 9_999
    group.beat("b", 2)
    group.tick(1)
    left = [(each.member_id, each.reason, each.client_host) for each in group.shard.departures()]
    assert left == [("c", DepartureReason.LEFT, "host"), ("a", DepartureReason.SESSION_EXPIRED, "host")]


def test_a_member_without_its_connection_has_until_its_heartbeat_is_overdue() -> None:
    group = Shared()
    group.join("a")
    group.join("b")
    for member in "ab":
        group.shard.share.doubt("g", member, SETTINGS, group._now())
    group.now_ms += 1_499
    group.beat("b", 2)
    group.tick(1)
    assert group.shard.share.take_departed() == [("g", "a")]
    group.tick(5_000)
    assert group.shard.share.take_departed() == []


def test_a_topic_that_grows_is_assigned_anew() -> None:
    group = Shared()
    group.join("a")
    group.topics["t"] = (uuid.UUID(int=1), 3)
    answer = group.beat("a", 1)
    assert answer.epoch == 2
    assert answer.assignment == frozenset({("t", 0), ("t", 1), ("t", 2)})


def test_a_restart_keeps_members_and_epochs() -> None:
    group = Shared()
    group.join("a")
    group.join("b")
    after = group.restarted()
    answer = after.beat("a", 1)
    assert answer.epoch == 2
    assert answer.assignment is not None and len(answer.assignment) == 1
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        after.beat("b", 3)


def test_a_deleted_group_stays_deleted() -> None:
    group = Shared()
    group.join("a")
    with refused(ErrorCode.NON_EMPTY_GROUP):
        group.shard.delete_group("g", object())
    group.beat("a", LEAVE_EPOCH)
    group.log += group.shard.delete_group("g", object()).events
    assert list(group.restarted().shard.listed()) == []


def test_a_group_is_of_one_kind() -> None:
    group = Shared()
    group.join("a")
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        group.shard.commit("g", None, object(), group._now())  # type: ignore[arg-type]
