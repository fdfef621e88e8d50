"""Offsets inside transactions: what is seen of them when, which of several commits wins, and what ends them."""

import pytest

from headwater.groups.consumer_requests import ConsumerHeartbeat
from headwater.groups.events import (
    OffsetCommitted,
    OffsetDeleted,
    PendingOffsetDeleted,
    PendingOffsetStored,
)
from headwater.groups.pending_offsets import PendingOffsets
from headwater.groups.rebalance import GroupState
from headwater.groups.requests import CommitRequest, LeaveRequest, OffsetToCommit
from headwater.groups.settings import GroupSettings
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import NO_DELAY, at, join_request, refusal
from tests.groups.driven_offsets import (
    HOUR_MS,
    SETTINGS,
    DrivenOffsets,
    answer,
    commit_request,
    compacted,
    orders_topics,
)

FIRST, SECOND, THIRD = 1, 2, 3
OK = [ErrorCode.NONE]


# What is seen


def test_an_offset_in_a_transaction_is_seen_when_the_transaction_commits() -> None:
    group = DrivenOffsets()
    group.commit(("orders", 0, 5))
    assert group.pend(FIRST, ("orders", 0, 7), ("orders", 1, 8)) == [ErrorCode.NONE, ErrorCode.NONE]
    assert (group.offset("orders", 0), group.offset("orders", 1)) == (5, None)
    assert group.is_pending("orders", 0) and group.is_pending("orders", 1)
    group.end_transaction(FIRST)
    assert (group.offset("orders", 0), group.offset("orders", 1)) == (7, 8)
    assert not group.is_pending("orders", 0) and not group.is_pending("orders", 1)


def test_an_offset_in_a_transaction_vanishes_when_the_transaction_aborts() -> None:
    group = DrivenOffsets()
    group.commit(("orders", 0, 5))
    group.pend(FIRST, ("orders", 0, 7), ("orders", 1, 8))
    group.end_transaction(FIRST, is_commit=False)
    assert (group.offset("orders", 0), group.offset("orders", 1)) == (5, None)
    assert not group.is_pending("orders", 0) and not group.is_pending("orders", 1)


def test_the_end_of_a_transaction_counts_for_all_groups_of_the_shard() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7))
    group.pend(FIRST, ("orders", 0, 9), group_id="h")
    group.end_transaction(FIRST)
    assert (group.offset("orders", 0), group.offset("orders", 0, "h")) == (7, 9)


def test_transactions_of_several_producers_end_independently() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7), ("orders", 1, 7))
    group.pend(SECOND, ("orders", 0, 8), ("orders", 2, 8))
    group.end_transaction(SECOND, is_commit=False)
    assert [group.offset("orders", index) for index in range(3)] == [None, None, None]
    assert [group.is_pending("orders", index) for index in range(3)] == [True, True, False]
    group.end_transaction(FIRST)
    assert [group.offset("orders", index) for index in range(3)] == [7, 7, None]


def test_an_offset_keeps_the_time_of_its_commit_when_its_transaction_ends() -> None:
    group = DrivenOffsets()
    request = commit_request(("orders", 0, 7))
    group.shard.commit_in_transaction("g", request, FIRST, 0, "t", at(1_000))
    (committed_event, _) = group.end_transaction(FIRST)
    assert isinstance(committed_event, OffsetCommitted)
    assert committed_event.committed.commit_timestamp_ms == at(1_000).wall_ms


def test_all_offsets_include_those_that_are_pending_alone() -> None:
    group = DrivenOffsets()
    group.commit(("orders", 0, 5), ("orders", 1, 5))
    group.pend(FIRST, ("orders", 1, 7), ("orders", 2, 7))
    found = group.shard.found_offsets("g", None)
    assert [(each.partition, each.committed is not None, each.is_pending) for each in found] == [
        (0, True, False),
        (1, True, True),
        (2, False, True),
    ]


# Which commit wins: the one that was logged last


def test_a_plain_commit_is_not_overwritten_by_a_transaction_that_committed_before_it() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7), ("orders", 1, 7))
    group.commit(("orders", 0, 5))
    assert not group.is_pending("orders", 0), "no end of the transaction can change it any more"
    group.end_transaction(FIRST)
    assert (group.offset("orders", 0), group.offset("orders", 1)) == (5, 7)


def test_a_plain_commit_is_overwritten_by_a_transaction_that_committed_after_it() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 6))
    group.commit(("orders", 0, 5))
    group.pend(FIRST, ("orders", 0, 7))
    group.end_transaction(FIRST)
    assert group.offset("orders", 0) == 7


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_of_two_transactions_the_later_commit_wins_whichever_ends_first(order: tuple[int, int]) -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 9))
    group.pend(SECOND, ("orders", 0, 8))
    for producer_id in order:
        group.end_transaction(producer_id)
    assert group.offset("orders", 0) == 8


def test_an_earlier_commit_wins_if_the_later_one_is_aborted() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 9))
    group.pend(SECOND, ("orders", 0, 8))
    group.end_transaction(SECOND, is_commit=False)
    group.end_transaction(FIRST)
    assert group.offset("orders", 0) == 9


def test_a_transaction_that_commits_an_offset_again_stands_behind_the_others_again() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7))
    group.pend(SECOND, ("orders", 0, 8))
    group.pend(FIRST, ("orders", 0, 9))
    group.end_transaction(FIRST)
    assert group.offset("orders", 0) == 9 and not group.is_pending("orders", 0)
    group.end_transaction(SECOND)
    assert group.offset("orders", 0) == 9


def test_the_order_of_commits_outlives_compaction() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 1))
    group.pend(SECOND, ("orders", 0, 2))
    group.pend(THIRD, ("orders", 0, 3))
    group.pend(SECOND, ("orders", 0, 4))
    group.restart(compacted(group.log))
    group.end_transaction(THIRD)
    assert group.offset("orders", 0) == 3
    group.end_transaction(SECOND)
    group.end_transaction(FIRST)
    assert group.offset("orders", 0) == 4


# The end may be told again, late, or by the wrong one


def test_the_end_of_a_transaction_can_be_told_again() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7))
    assert [type(event) for event in group.end_transaction(FIRST)] == [OffsetCommitted, PendingOffsetDeleted]
    assert group.end_transaction(FIRST) == []
    group.commit(("orders", 0, 3))
    assert group.end_transaction(FIRST) == [] and group.offset("orders", 0) == 3


def test_the_end_of_an_unknown_transaction_changes_nothing() -> None:
    assert DrivenOffsets().end_transaction(FIRST) == []


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_that_a_crash_tore_apart_is_finished_by_repeating_it(is_commit: bool) -> None:
    group = DrivenOffsets()
    group.commit(("orders", 0, 5))
    group.pend(FIRST, ("orders", 0, 6), ("orders", 1, 6))
    group.pend(SECOND, ("orders", 0, 7), ("orders", 1, 7), ("orders", 2, 7))
    group.pend(THIRD, ("orders", 1, 8))
    before = list(group.log)
    events = group.end_transaction(SECOND, is_commit)
    expected = group.shard.durable_state()
    for count in range(len(events) + 1):
        group.restart(before + events[:count])
        group.end_transaction(SECOND, is_commit)
        assert group.shard.durable_state() == expected
        assert group.replayed(compacted(group.log)).durable_state() == expected


def test_an_older_transaction_that_commits_into_a_torn_end_does_not_win() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 6))
    group.pend(SECOND, ("orders", 0, 7))
    before = list(group.log)
    events = group.end_transaction(SECOND)
    for count in range(len(events) + 1):
        group.restart(before + events[:count])
        group.end_transaction(FIRST)
        assert group.offset("orders", 0) in (6, 7), "one of the two that have committed"
        group.end_transaction(SECOND)
        assert group.offset("orders", 0) == 7 and len(group.shard.durable_state()[2]) == 0


def test_a_plain_commit_that_a_crash_tore_apart_stands_before_the_transactions_that_it_did_not_remove() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 6))
    group.pend(SECOND, ("orders", 0, 7))
    before = list(group.log)
    group.commit(("orders", 0, 5))
    events = group.log[len(before) :]
    found = []
    for count in range(len(events) + 1):
        group.restart(before + events[:count])
        counted = group.offset("orders", 0)
        group.end_transaction(SECOND)
        group.end_transaction(FIRST)
        found.append((counted, group.offset("orders", 0)))
    assert found == [(None, 7), (5, 7), (5, 7), (5, 5)]


def test_a_transaction_may_end_in_a_later_epoch_than_it_had() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7), epoch=4)
    group.end_transaction(FIRST, epoch=5)
    assert group.offset("orders", 0) == 7


def test_an_end_in_an_earlier_epoch_than_what_is_pending_is_refused() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7), epoch=4)
    assert refusal(lambda: group.end_transaction(FIRST, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert group.is_pending("orders", 0)


def test_a_producer_in_an_earlier_epoch_than_what_is_pending_is_fenced() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7), epoch=4)
    assert refusal(lambda: group.pend(FIRST, ("orders", 1, 8), epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not group.is_pending("orders", 1)
    assert group.pend(SECOND, ("orders", 1, 8), epoch=3) == OK, "epochs are of one producer"


def test_what_an_earlier_epoch_left_behind_is_not_committed_with_a_later_one() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7), epoch=3)
    group.pend(FIRST, ("orders", 1, 8), epoch=4)
    group.end_transaction(FIRST, epoch=4)
    assert (group.offset("orders", 0), group.offset("orders", 1)) == (None, 8)


# What is refused


def test_too_much_metadata_is_refused_for_its_offset_alone() -> None:
    group = DrivenOffsets()
    offsets = (OffsetToCommit("orders", 0, 1, -1, "ü" * 2_049), OffsetToCommit("orders", 1, 1, -1, "ü" * 2_048))
    effects = group.shard.commit_in_transaction("g", CommitRequest("", None, -1, offsets), FIRST, 0, "t", at(0))
    assert [each.error for each in answer(effects)] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert not group.is_pending("orders", 0) and group.is_pending("orders", 1)


def test_the_number_of_pending_offsets_is_limited_and_room_comes_back_with_the_end_of_transactions() -> None:
    group = DrivenOffsets(GroupSettings(max_pending_offsets=2))
    group.pend(FIRST, ("orders", 0, 1))
    refused = refusal(lambda: group.pend(SECOND, ("orders", 0, 1), ("orders", 1, 1), group_id="h"))
    assert refused is ErrorCode.POLICY_VIOLATION and not group.is_pending("orders", 0, "h")
    group.end_transaction(FIRST)
    assert group.pend(SECOND, ("orders", 0, 1), ("orders", 1, 1), group_id="h") == OK * 2


def test_groups_that_only_have_pending_offsets_count_towards_the_limit_of_groups() -> None:
    group = DrivenOffsets(GroupSettings(max_groups=1))
    group.pend(FIRST, ("orders", 0, 1))
    assert refusal(lambda: group.pend(FIRST, ("orders", 0, 1), group_id="h")) is ErrorCode.POLICY_VIOLATION
    assert group.pend(FIRST, ("orders", 1, 1)) == OK


def test_a_share_group_commits_no_offsets() -> None:
    group = DrivenOffsets()
    group.shard.create_share_group("g", "t")
    assert refusal(lambda: group.pend(FIRST, ("orders", 0, 1))) is ErrorCode.GROUP_ID_NOT_FOUND
    group.pend(FIRST, ("orders", 0, 1), group_id="h")
    assert refusal(lambda: group.shard.create_share_group("h", "t")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_id_must_not_be_empty() -> None:
    group = DrivenOffsets()
    assert refusal(lambda: group.pend(FIRST, ("orders", 0, 1), group_id="")) is ErrorCode.INVALID_GROUP_ID


def test_nobody_is_member_of_an_unknown_group() -> None:
    group = DrivenOffsets()
    refused = refusal(lambda: group.pend(FIRST, ("orders", 0, 1), member_id="m", generation=1))
    assert refused is ErrorCode.ILLEGAL_GENERATION and group.shard.group_ids() == []


# Members of the classic protocol


def test_a_member_commits_in_its_generation() -> None:
    group = DrivenOffsets(NO_DELAY)
    member = group.classic_member()
    assert group.pend(FIRST, ("orders", 0, 7), member_id=member, generation=1) == OK
    stale = refusal(lambda: group.pend(FIRST, ("orders", 0, 8), member_id=member, generation=0))
    assert stale is ErrorCode.ILLEGAL_GENERATION
    unknown = refusal(lambda: group.pend(FIRST, ("orders", 0, 8), member_id="other", generation=1))
    assert unknown is ErrorCode.UNKNOWN_MEMBER_ID
    group.end_transaction(FIRST)
    assert group.offset("orders", 0) == 7


def test_an_old_producer_that_cannot_say_who_reads_commits_to_a_group_with_members() -> None:
    group = DrivenOffsets(NO_DELAY)
    group.classic_member()
    assert refusal(lambda: group.commit(("orders", 0, 7))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.pend(FIRST, ("orders", 0, 7)) == OK


def test_a_transaction_need_not_wait_for_the_assignment() -> None:
    group = DrivenOffsets(NO_DELAY)
    member = answer(group.shard.join("g", join_request(needs_known_id=False), "u", "t", at(0))).member_id
    assert group.shard.described("g").state is GroupState.COMPLETING
    who = {"member_id": member, "generation": 1}
    assert refusal(lambda: group.commit(("orders", 0, 7), **who)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.pend(FIRST, ("orders", 0, 7), **who) == OK


def test_a_producers_commit_is_no_sign_of_life_of_the_reader() -> None:
    group = DrivenOffsets(NO_DELAY)
    member = group.classic_member()
    before_ms = group.shard.next_deadline_ms()
    request = commit_request(("orders", 0, 7), member_id=member, generation=1)
    group.shard.commit_in_transaction("g", request, FIRST, 0, "t", at(5_000))
    assert group.shard.next_deadline_ms() == before_ms


# Members of the new protocol


def test_a_member_of_the_new_protocol_commits_in_its_epoch() -> None:
    group = DrivenOffsets(topics=orders_topics())
    epoch = group.consumer_member()
    assert group.pend(FIRST, ("orders", 0, 7), member_id="m", generation=epoch) == OK
    stale = refusal(lambda: group.pend(FIRST, ("orders", 0, 8), member_id="m", generation=epoch - 1))
    assert stale is ErrorCode.STALE_MEMBER_EPOCH
    unknown = refusal(lambda: group.pend(FIRST, ("orders", 0, 8), member_id="other", generation=epoch))
    assert unknown is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.pend(FIRST, ("orders", 1, 7)) == OK, "an old producer cannot say who reads"
    group.end_transaction(FIRST)
    assert (group.offset("orders", 0), group.offset("orders", 1)) == (7, 7)


def test_pending_offsets_stay_when_a_group_changes_its_protocol() -> None:
    group = DrivenOffsets(topics=orders_topics())
    group.pend(FIRST, ("orders", 0, 7))
    group.consumer_member()
    leave = ConsumerHeartbeat("m", -1, None, "app", "/h")
    group.log += group.shard.consumer_heartbeat("g", leave, "t", at(0)).events
    assert group.is_pending("orders", 0)
    group.classic_member()
    assert group.is_pending("orders", 0)
    group.restart(compacted(group.log))
    group.end_transaction(FIRST)
    assert group.offset("orders", 0) == 7


# The end of offsets


def test_a_group_that_only_has_pending_offsets_is_there() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7))
    assert group.shard.group_ids() == ["g"]
    assert [(each.group_id, each.state) for each in group.shard.listed()] == [("g", GroupState.EMPTY)]
    assert group.shard.described("g").state is GroupState.EMPTY
    group.end_transaction(FIRST, is_commit=False)
    assert group.shard.group_ids() == []


def test_a_deleted_group_takes_its_pending_offsets_along() -> None:
    group = DrivenOffsets()
    group.commit(("orders", 0, 5))
    group.pend(FIRST, ("orders", 0, 7), ("orders", 1, 7))
    group.pend(FIRST, ("orders", 0, 9), group_id="h")
    assert group.shard.delete_group("g", "t").events == [
        OffsetDeleted("g", "orders", 0),
        PendingOffsetDeleted(FIRST, "g", "orders", 0),
        PendingOffsetDeleted(FIRST, "g", "orders", 1),
    ]
    assert refusal(lambda: group.shard.delete_group("g", "t")) is ErrorCode.GROUP_ID_NOT_FOUND
    group.end_transaction(FIRST)
    assert (group.offset("orders", 0), group.offset("orders", 0, "h")) == (None, 9)


def test_a_deleted_offset_takes_the_pending_ones_of_its_partition_along() -> None:
    group = DrivenOffsets()
    group.commit(("orders", 0, 5))
    group.pend(FIRST, ("orders", 0, 7), ("orders", 1, 7), ("orders", 2, 7))
    effects = group.shard.delete_offsets("g", [("orders", 0), ("orders", 1)], "t")
    assert [each.error for each in answer(effects)] == OK * 2
    group.end_transaction(FIRST)
    assert [group.offset("orders", index) for index in range(3)] == [None, None, 7]


def test_a_deleted_topic_takes_its_pending_offsets_along() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7), ("bills", 0, 7))
    assert group.shard.offset_topics() == {"orders", "bills"}
    assert group.shard.forget_topic("orders").events == [PendingOffsetDeleted(FIRST, "g", "orders", 0)]
    assert group.shard.offset_topics() == {"bills"}
    group.end_transaction(FIRST)
    assert (group.offset("orders", 0), group.offset("bills", 0)) == (None, 7)


def test_where_a_transaction_is_open_no_offset_expires() -> None:
    group = DrivenOffsets(SETTINGS)
    group.commit(("orders", 0, 5), ("orders", 1, 5))
    group.pend(FIRST, ("orders", 0, 7))
    assert group.shard.expire("g", at(2 * HOUR_MS)).events == [OffsetDeleted("g", "orders", 1)]
    group.end_transaction(FIRST, is_commit=False)
    assert group.shard.expire("g", at(2 * HOUR_MS)).events == [OffsetDeleted("g", "orders", 0)]


def test_an_empty_group_with_pending_offsets_does_not_expire() -> None:
    group = DrivenOffsets(SETTINGS)
    member = group.classic_member()
    group.pend(FIRST, ("orders", 0, 7), member_id=member, generation=1)
    group.shard.leave("g", [LeaveRequest(member, None)], "t", at(0))
    assert group.shard.expire("g", at(9 * HOUR_MS)).events == []
    assert group.shard.described("g").generation > 1
    group.end_transaction(FIRST, is_commit=False)
    assert len(group.shard.expire("g", at(9 * HOUR_MS)).events) == 1
    assert group.shard.group_ids() == []


def test_a_log_that_is_replayed_twice_ends_in_the_same_state() -> None:
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7), ("orders", 1, 7))
    group.pend(SECOND, ("orders", 0, 8))
    group.commit(("orders", 1, 5))
    group.pend(THIRD, ("orders", 0, 9))
    group.end_transaction(SECOND)
    again = group.replayed(group.log + group.log)
    assert again.durable_state() == group.shard.durable_state()


def test_nothing_is_left_in_memory_of_what_is_no_longer_pending() -> None:
    pending = PendingOffsets()
    group = DrivenOffsets()
    group.pend(FIRST, ("orders", 0, 7), ("orders", 1, 7))
    group.pend(SECOND, ("orders", 0, 8), group_id="h")
    stored = [event for event in group.log if isinstance(event, PendingOffsetStored)]
    for event in stored * 2:
        pending.apply(event)
    assert len(pending) == 3 and pending.epoch(FIRST) == 0
    for event in [*stored, *stored]:
        pending.apply(PendingOffsetDeleted(event.producer_id, event.group_id, event.topic, event.partition))
    assert (len(pending), list(pending), pending.group_ids(), pending.epoch(FIRST)) == (0, [], [], -1)
