"""Groups of the new protocol: joining, giving up and taking, being removed, and what is refused."""

from typing import Any

import pytest

from headwater.groups.events import GroupDeleted
from headwater.groups.requests import CommitRequest, LeaveRequest, OffsetToCommit
from headwater.groups.settings import GroupSettings
from headwater.groups.topic_patterns import MAX_PATTERN_CHARS
from headwater.model.errors import ErrorCode
from tests.groups.driven_consumers import GROUP, REBALANCE_MS, SESSION_MS, Consumer, DrivenConsumers, partitions
from tests.groups.driven_group import refusal

JOIN: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "topic_names": ("orders",), "owned": {}}


def test_the_first_member_gets_everything_at_once() -> None:
    group = DrivenConsumers(orders=4)
    answer = group.beat("m", 0, **JOIN)
    assert (answer.member_id, answer.epoch, answer.heartbeat_interval_ms) == ("m", 1, 5_000)
    assert answer.assigned == partitions("orders", 0, 1, 2, 3)
    assert group.state == "Stable"


def test_a_second_member_waits_until_the_first_has_given_up() -> None:
    group = DrivenConsumers(orders=4)
    first, second = Consumer("a"), Consumer("b")
    group.join(first)
    group.apply_told(first)
    group.join(second)
    assert (second.epoch, second.told) == (2, {})
    assert group.state == "Reconciling"
    answer = group.heartbeat(first, says_owned=False)
    assert answer.epoch == 1, "it stays in its epoch until it has given up"
    assert answer.assigned == partitions("orders", 0, 1)
    assert group.heartbeat(second).assigned is None, "the first has not said that it stopped"
    assert group.heartbeat(first, says_owned=False).assigned is None, "it was told already"
    group.apply_told(first)
    assert group.heartbeat(first).epoch == 2
    assert group.heartbeat(second).assigned == partitions("orders", 2, 3)
    assert group.state == "Stable"


def test_a_quiet_heartbeat_changes_and_logs_nothing() -> None:
    group = DrivenConsumers()
    (member,) = group.joined(1)
    logged = len(group.log)
    answer = group.heartbeat(member, says_owned=False)
    assert answer.assigned is None and len(group.log) == logged


def test_a_full_heartbeat_is_told_everything_again() -> None:
    group = DrivenConsumers(orders=1)
    (member,) = group.joined(1)
    answer = group.beat("m0", member.epoch, **{**JOIN, "owned": member.owned})
    assert answer.assigned == partitions("orders", 0)


def test_what_a_member_leaves_behind_goes_to_the_others() -> None:
    group = DrivenConsumers(orders=4)
    first, second = group.joined(2)
    epoch = group.described.epoch
    group.leave(first)
    assert group.described.epoch == epoch + 1 and group.state == "Assigning"
    group.converge(second)
    assert second.indexes() == {0, 1, 2, 3} and group.state == "Stable"
    group.leave(second)
    assert group.state == "Empty" and group.reasons == ["left", "left"]


def test_more_members_than_partitions_leave_some_without() -> None:
    group = DrivenConsumers(orders=2)
    members = group.joined(8)
    assert sorted(len(member.indexes()) for member in members) == [0] * 6 + [1, 1]
    assert group.state == "Stable"


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    group = DrivenConsumers(orders=4)
    first, second = group.joined(2)
    group.pass_ms(SESSION_MS - 1)
    group.heartbeat(second)
    group.pass_ms(1)
    assert group.reasons == ["session expired"]
    assert refusal(lambda: group.heartbeat(first)) is ErrorCode.UNKNOWN_MEMBER_ID
    group.converge(second)
    assert second.indexes() == {0, 1, 2, 3}


def test_a_member_that_does_not_give_up_in_time_is_removed_though_it_is_heard() -> None:
    group = DrivenConsumers(orders=4)
    (first,) = group.joined(1)
    second = Consumer("b")
    group.join(second)
    group.heartbeat(first)
    for _ in range(3):
        group.pass_ms(REBALANCE_MS // 3)
        if not group.reasons:
            group.heartbeat(first)
        group.heartbeat(second)
    assert group.reasons == ["did not give up its partitions in time"]
    group.converge(second)
    assert second.indexes() == {0, 1, 2, 3}


def test_an_unknown_member_and_a_wrong_epoch_are_fenced() -> None:
    group = DrivenConsumers()
    (member,) = group.joined(1)
    assert refusal(lambda: group.beat("nobody", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: group.beat("m0", member.epoch + 1)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(lambda: group.beat("m0", member.epoch - 1)) is not ErrorCode.NONE
    assert refusal(lambda: group.beat("nobody", -1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.state == "Stable"


def test_a_member_that_missed_an_answer_may_name_the_epoch_before() -> None:
    group = DrivenConsumers(orders=2)
    first, second = Consumer("a"), Consumer("b")
    group.join(first)
    group.apply_told(first)
    group.join(second)
    group.heartbeat(first)
    group.apply_told(first)
    lost = group.beat("a", 1, owned=first.owned)
    assert lost.epoch == 2
    again = group.beat("a", 1, owned=first.owned)
    assert (again.epoch, again.assigned) == (2, first.owned), "it is told what it missed"
    assert refusal(lambda: group.beat("a", 1)) is ErrorCode.FENCED_MEMBER_EPOCH
    too_much = partitions("orders", 0, 1)
    assert refusal(lambda: group.beat("a", 1, owned=too_much)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_joins_again_has_nothing_and_gets_its_share_back() -> None:
    group = DrivenConsumers(orders=4)
    first, _ = group.joined(2)
    share, epoch = first.owned, group.described.epoch
    group.join(first)
    assert first.told == share and group.described.epoch == epoch


@pytest.mark.parametrize(
    "fields",
    [
        {**JOIN, "rebalance_timeout_ms": -1},
        {**JOIN, "owned": None},
        {**JOIN, "owned": partitions("orders", 0)},
        {**JOIN, "topic_names": None},
        {**JOIN, "instance_id": ""},
        {**JOIN, "instance_id": "i" * 256},
        {**JOIN, "rack_id": " "},
        {**JOIN, "rebalance_timeout_ms": -2},
        {**JOIN, "topic_names": tuple(f"t{number}" for number in range(10_001))},
    ],
)
def test_a_join_that_says_too_little_or_too_much_is_refused(fields: dict[str, Any]) -> None:
    group = DrivenConsumers()
    assert refusal(lambda: group.beat("m", 0, **fields)) is ErrorCode.INVALID_REQUEST
    assert group.shard.group_ids() == [] and group.log == []


def test_other_nonsense_is_refused() -> None:
    group = DrivenConsumers()
    assert refusal(lambda: group.beat("", 0, **JOIN)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: group.beat("m", -3)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: group.beat("m", -2)) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: group.beat("m", 0, server_assignor="sticky", **JOIN)) is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert group.shard.group_ids() == []


def test_a_group_has_a_limit_of_members() -> None:
    group = DrivenConsumers(GroupSettings(consumer_max_members=2))
    first, _ = group.joined(2)
    assert refusal(lambda: group.beat("c", 0, **JOIN)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    group.leave(first)
    group.beat("c", 0, **JOIN)


# Topics and patterns


def test_new_partitions_and_new_topics_are_picked_up() -> None:
    group = DrivenConsumers(orders=2)
    members = group.joined(2, topics=("orders", "bills"))
    epoch = group.described.epoch
    group.put_topic("other", 1)
    group.converge(*members)
    assert group.described.epoch == epoch, "it reads no such topic"
    group.put_topic("orders", 4)
    group.put_topic("bills", 2)
    group.converge(*members)
    assert sorted(index for member in members for index in member.indexes()) == [0, 1, 2, 3]
    assert sorted(index for member in members for index in member.indexes("bills")) == [0, 1]
    assert [len(member.indexes()) + len(member.indexes("bills")) for member in members] == [3, 3]


def test_a_deleted_topic_is_given_up_and_its_successor_is_another() -> None:
    group = DrivenConsumers(orders=2)
    (member,) = group.joined(1)
    group.topics.remove("orders")
    group.converge(member)
    assert member.owned == {}
    group.put_topic("orders", 1, incarnation=1)
    group.converge(member)
    (assigned,) = member.owned.items()
    assert assigned[0] != partitions("orders", 0).keys() and assigned[1] == {0}


def test_a_topic_that_changes_while_the_broker_is_down_is_noticed() -> None:
    group = DrivenConsumers(orders=1)
    (member,) = group.joined(1)
    epoch = member.epoch
    group.put_topic("orders", 2)
    group.restart()
    group.converge(member)
    assert member.indexes() == {0, 1} and member.epoch == epoch + 1
    group.restart()
    group.converge(member)
    assert member.epoch == epoch + 1, "nothing changed this time"


def test_a_pattern_reads_what_it_matches_now_and_later() -> None:
    group = DrivenConsumers(orders=1, oranges=1, bills=1)
    (member,) = group.joined(1, topics=("bills",), regex="^or.*")
    assert (member.indexes("orders"), member.indexes("oranges"), member.indexes("bills")) == ({0}, {0}, {0})
    group.put_topic("origins", 1)
    group.put_topic("x-or", 1)
    group.converge(member)
    assert member.indexes("origins") == {0} and not member.indexes("x-or")
    group.topics.remove("oranges")
    group.converge(member)
    assert not member.indexes("oranges")
    group.restart()
    group.converge(member)
    assert member.indexes("orders") == {0}
    group.heartbeat(member, topic_regex="")
    group.converge(member)
    assert set(member.owned) == set(partitions("bills", 0))


@pytest.mark.parametrize(
    "regex", ["(", "a**", "(a)\\1", "(?=a)", "x" * (MAX_PATTERN_CHARS + 1), "((a{100}){100}){100}"]
)
def test_what_is_no_pattern_is_refused(regex: str) -> None:
    group = DrivenConsumers()
    fields = {**JOIN, "topic_regex": regex}
    assert refusal(lambda: group.beat("m", 0, **fields)) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group.shard.group_ids() == []


def test_a_pattern_that_would_be_slow_elsewhere_is_not_slow_here() -> None:
    topics: dict[str, Any] = {"a" * 249: 1}
    group = DrivenConsumers(**topics)
    (member,) = group.joined(1, topics=None, regex="(a+)+b|(a*)*c")
    assert member.owned == {}


def test_members_choose_the_strategy_by_majority() -> None:
    group = DrivenConsumers(orders=4, bills=4)
    topics = ("bills", "orders")
    members = [Consumer("a", topics=topics, assignor="range"), Consumer("b", topics=topics)]
    for member in members:
        group.join(member)
    group.converge(*members)
    assert group.described.assignor == "range"
    assert members[0].indexes("orders") == members[0].indexes("bills") == {0, 1}
    for member in members:
        group.heartbeat(member, server_assignor="uniform")
    assert group.described.assignor == "uniform"


# Static members


def test_a_static_member_that_is_away_keeps_its_share_for_its_successor() -> None:
    group = DrivenConsumers(orders=4)
    first, second = Consumer("a", "i1"), Consumer("b", "i2")
    for member in (first, second):
        group.join(member)
    group.converge(first, second)
    share, epoch = first.owned, group.described.epoch
    group.leave(first, epoch=-2)
    assert group.described.epoch == epoch and group.state == "Stable"
    assert group.heartbeat(second).assigned is None
    again = Consumer("a2", "i1")
    group.join(again)
    assert (again.told, again.epoch) == (share, epoch) and group.described.epoch == epoch
    assert refusal(lambda: group.beat("a", epoch, instance_id="i1")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_removed() -> None:
    group = DrivenConsumers(orders=4)
    first, second = Consumer("a", "i1"), Consumer("b")
    for member in (first, second):
        group.join(member)
    group.converge(first, second)
    group.leave(first, epoch=-2)
    group.pass_ms(SESSION_MS - 1)
    group.heartbeat(second)
    group.pass_ms(1)
    group.converge(second)
    assert second.indexes() == {0, 1, 2, 3} and group.reasons == ["session expired"]


def test_an_instance_that_is_in_use_is_not_given_to_another() -> None:
    group = DrivenConsumers()
    group.join(Consumer("a", "i"))
    assert refusal(lambda: group.join(Consumer("b", "i"))) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert refusal(lambda: group.beat("b", 1, instance_id="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert refusal(lambda: group.beat("a", 1, instance_id="j")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: group.join(Consumer("a", "j"))) is ErrorCode.INVALID_REQUEST
    assert refusal(lambda: group.join(Consumer("a"))) is ErrorCode.INVALID_REQUEST


def test_an_administrator_removes_an_instance() -> None:
    group = DrivenConsumers()
    group.join(Consumer("a", "i"))
    (answer,) = group.classic_leave(LeaveRequest("", "i", "maintenance"))
    assert answer.error is ErrorCode.NONE and group.state == "Empty"
    (departure,) = group.shard.departures()
    assert (departure.instance_id, departure.explanation) == ("i", "maintenance")


# Offsets


def test_only_the_present_epoch_may_commit() -> None:
    group = DrivenConsumers()
    (member,) = group.joined(1)
    assert group.commit(member, member.epoch) is ErrorCode.NONE
    assert refusal(lambda: group.commit(member, member.epoch - 1)) is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(lambda: group.commit(member, -1)) is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(lambda: group.commit(Consumer("nobody"), 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    group.leave(member)
    request = CommitRequest("", None, -1, (OffsetToCommit("orders", 0, 5, -1, ""),))
    group.asked(lambda to: group.shard.commit(GROUP, request, to, group.now))
    committed = group.shard.offsets(GROUP).get("orders", 0)
    assert committed is not None and committed.offset == 5


def test_only_the_present_epoch_may_ask_for_offsets() -> None:
    group = DrivenConsumers()
    (member,) = group.joined(1)
    group.shard.check_fetch(GROUP, "m0", member.epoch)
    group.shard.check_fetch(GROUP, None, -1)
    group.shard.check_fetch("other", "whoever", 7)
    stale = refusal(lambda: group.shard.check_fetch(GROUP, "m0", member.epoch + 1))
    assert stale is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(lambda: group.shard.check_fetch(GROUP, "x", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_are_read_are_neither_deleted_nor_expire() -> None:
    group = DrivenConsumers(GroupSettings(offsets_retention_ms=1_000, consumer_session_timeout_ms=10**9))
    (member,) = group.joined(1)
    group.commit(member, member.epoch)
    (answer,) = group.asked(lambda to: group.shard.delete_offsets(GROUP, [("orders", 0)], to))
    assert answer.error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    group.pass_ms(2_000)
    group.took(group.shard.expire(GROUP, group.now))
    assert group.shard.offsets(GROUP)
    group.leave(member)
    group.pass_ms(999)
    group.took(group.shard.expire(GROUP, group.now))
    assert group.shard.offsets(GROUP)
    group.pass_ms(1)
    group.took(group.shard.expire(GROUP, group.now))
    assert group.shard.group_ids() == []
    assert group.replayed(group.log).group_ids() == []


def test_a_group_is_deleted_when_it_is_empty() -> None:
    group = DrivenConsumers()
    (member,) = group.joined(1)
    assert refusal(lambda: group.shard.delete_group(GROUP, "t")) is ErrorCode.NON_EMPTY_GROUP
    group.leave(member)
    group.asked(lambda to: group.shard.delete_group(GROUP, to))
    assert group.shard.group_ids() == [] and group.replayed(group.log).group_ids() == []
    assert not any(isinstance(event, GroupDeleted) for event in group.log)


# Restarts


def test_members_go_on_with_their_epochs_after_a_restart_and_have_a_whole_session() -> None:
    group = DrivenConsumers(orders=4)
    members = group.joined(2)
    group.pass_ms(SESSION_MS - 1)
    group.restart()
    group.pass_ms(SESSION_MS - 1)
    epoch = group.described.epoch
    for member in members:
        assert group.heartbeat(member).assigned is None
    assert group.described.epoch == epoch and group.state == "Stable"


def test_a_revocation_that_is_under_way_goes_on_after_a_restart() -> None:
    group = DrivenConsumers(orders=4)
    (first,) = group.joined(1)
    second = Consumer("b")
    group.join(second)
    group.heartbeat(first)
    group.pass_ms(REBALANCE_MS - 1)
    group.restart()
    group.heartbeat(second)
    assert second.indexes() == set(), "the first still has them"
    group.pass_ms(REBALANCE_MS - 1)
    assert not group.reasons, "it has its whole time again"
    group.pass_ms(1)
    assert group.reasons == ["did not give up its partitions in time"]


def test_the_kinds_of_groups_are_told_apart() -> None:
    group = DrivenConsumers()
    group.joined(1)
    (listed,) = group.shard.listed()
    assert (listed.kind, listed.protocol_type, listed.state.value) == ("consumer", "consumer", "Stable")
    assert group.shard.described(GROUP).state.value == "Dead"
    assert refusal(lambda: group.shard.described_consumer("other")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_that_is_slow_to_take_its_partitions_does_not_share_them_with_the_next_one() -> None:
    """Its acknowledgement of the assignment before says that it owns nothing, while its application begins to read."""
    group = DrivenConsumers(orders=4)
    slow, other = Consumer("slow"), Consumer("other")
    group.join(slow)
    group.begin_to_take(slow)
    group.join(other)
    for _ in range(3):
        group.heartbeat(slow)
        group.heartbeat(other)
        group.apply_told(other)
    assert not other.indexes()
    group.apply_told(slow)
    group.converge(slow, other)
    assert sorted(slow.indexes() | other.indexes()) == [0, 1, 2, 3] and len(slow.indexes()) == 2
