"""Groups with members of both protocols, and groups that go from one protocol to the other while they live."""

import contextlib
from typing import Any

import pytest

from headwater.groups.events import GroupStored
from headwater.groups.requests import LeaveRequest
from headwater.groups.settings import GroupSettings, MigrationPolicy
from headwater.model.errors import ErrorCode, RequestError
from tests.groups.classic_members import Classic
from tests.groups.driven_consumers import GROUP, Consumer, DrivenConsumers
from tests.groups.driven_group import join_request, refusal


def assignment(*indexes: int) -> bytes:
    listed = b"".join(index.to_bytes(4, "big") for index in indexes)
    return b"\x00\x00\x00\x00\x00\x01\x00\x06orders" + len(indexes).to_bytes(4, "big") + listed + b"\xff\xff\xff\xff"


def lone_classic(group: DrivenConsumers, **fields: Any) -> Classic:
    """A stable classic group with one member that reads everything."""
    member = Classic(group, **fields)
    member.join()
    member.sync({member.member_id: assignment(0, 1, 2, 3)})
    assert member.owned == {0, 1, 2, 3}
    return member


def converge(group: DrivenConsumers, classics: list[Classic], consumers: list[Consumer]) -> None:
    for _ in range(6):
        for classic in classics:
            classic.live()
        group.converge(*consumers, rounds=1)
        assert_one_owner(classics, consumers)


def assert_one_owner(classics: list[Classic], consumers: list[Consumer]) -> None:
    shares = [classic.owned for classic in classics] + [consumer.indexes() for consumer in consumers]
    together = [index for share in shares for index in share]
    assert len(together) == len(set(together)), f"read by two at once: {shares}"


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_member_of_the_new_protocol_takes_a_classic_group_over(is_cooperative: bool) -> None:
    group = DrivenConsumers(orders=4)
    classic = lone_classic(group, is_cooperative=is_cooperative)
    generation = classic.generation
    new = Consumer("new")
    group.join(new)
    group.apply_told(new)
    assert new.owned == {}, "the classic member still has everything"
    assert (group.described.epoch, classic.heartbeat()) == (generation + 1, ErrorCode.REBALANCE_IN_PROGRESS)
    converge(group, [classic], [new])
    assert len(classic.owned) == len(new.indexes()) == 2 and group.state == "Stable"
    assert sorted(member.is_classic for member in group.described.members) == [False, True]
    group.restart()
    converge(group, [classic], [new])
    assert len(classic.owned) == len(new.indexes()) == 2 and group.state == "Stable"


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_the_group_goes_back_when_its_last_member_of_the_new_protocol_leaves(is_cooperative: bool) -> None:
    group = DrivenConsumers(orders=4)
    classic = lone_classic(group, is_cooperative=is_cooperative)
    new = Consumer("new")
    group.join(new)
    converge(group, [classic], [new])
    group.leave(new)
    described = group.shard.described(GROUP)
    assert described.state.value == "PreparingRebalance" and described.departures[-1].member_id == "new"
    assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "its generation is still known"
    answer = classic.join()
    assert answer is not None and answer.leader == classic.member_id and len(answer.members) == 1
    classic.sync({classic.member_id: assignment(0, 1, 2, 3)})
    assert classic.owned == {0, 1, 2, 3}
    group.restart()
    assert classic.heartbeat() is ErrorCode.NONE
    assert group.replayed(group.log).durable_state() == group.shard.durable_state()


def test_a_new_member_that_falls_silent_lets_the_group_go_back() -> None:
    group = DrivenConsumers(orders=4)
    classic = lone_classic(group)
    group.join(Consumer("new"))
    for _ in range(9):
        classic.live()
        group.pass_ms(5_000)
    assert group.shard.described(GROUP).protocol_type == "consumer"
    assert group.reasons[-1] == "session expired"
    assert refusal(lambda: group.beat("new", 2)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_everybody_moves_to_the_new_protocol_one_by_one() -> None:
    group = DrivenConsumers(orders=4)
    classics = [lone_classic(group)]
    consumers: list[Consumer] = []
    for number in range(3):
        consumers.append(Consumer(f"new{number}"))
        group.join(consumers[-1])
        converge(group, classics, consumers)
        if classics:
            gone = classics.pop()
            group.classic_leave(LeaveRequest(gone.member_id, None))
            converge(group, classics, consumers)
    assert sorted(index for each in consumers for index in each.indexes()) == [0, 1, 2, 3]
    assert group.state == "Stable"


def test_a_classic_member_joins_a_group_of_the_new_protocol() -> None:
    group = DrivenConsumers(orders=4)
    consumers = group.joined(1)
    eager, cooperative = Classic(group), Classic(group, is_cooperative=True)
    answer = eager.join()
    assert answer is not None and (answer.leader, answer.members, answer.protocol) == ("", (), "range")
    assert refusal(cooperative.join) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "it shares no protocol with the first"
    assert eager.sync() is ErrorCode.NONE
    converge(group, [eager], consumers)
    assert len(eager.owned) == len(consumers[0].indexes()) == 2
    other = refusal(lambda: group.classic_join(join_request(protocol_type="connect")))
    assert other is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unknown = refusal(lambda: group.classic_join(join_request("nobody")))
    assert unknown is ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_members_are_held_to_their_time() -> None:
    group = DrivenConsumers(orders=4)
    (new,) = group.joined(1)
    silent, slow, lazy = (Classic(group) for _ in range(3))
    for each in (silent, slow, lazy):
        each.join()
    for each in (silent, slow):
        each.sync()
    for _ in range(6):
        group.pass_ms(4_000)
        group.heartbeat(new)
        group.apply_told(new)
        for each in (slow, lazy):
            with contextlib.suppress(RequestError):
                each.heartbeat()
    assert sorted(group.reasons) == ["did not rejoin in time", "did not sync in time", "session expired"]


def test_a_static_instance_moves_from_one_protocol_to_the_other_and_back() -> None:
    group = DrivenConsumers(orders=4)
    classic = lone_classic(group, instance_id="i")
    upgraded = Consumer("new", "i")
    group.join(upgraded)
    group.apply_told(upgraded)
    assert upgraded.indexes() == {0, 1, 2, 3} and len(group.described.members) == 1
    assert refusal(classic.heartbeat) is ErrorCode.FENCED_INSTANCE_ID
    back = Classic(group, instance_id="i")
    back.join()
    assert group.shard.described(GROUP).state.value != "Dead", "nobody needs the new protocol any more"
    back.join()
    back.sync({back.member_id: assignment(0, 1, 2, 3)})
    assert back.owned == {0, 1, 2, 3}


def test_commits_of_classic_members_name_their_generation() -> None:
    group = DrivenConsumers(orders=4)
    classic = lone_classic(group)
    new = Consumer("new")
    group.join(new)
    converge(group, [classic], [new])
    as_consumer = Consumer(classic.member_id)
    assert group.commit(as_consumer, classic.generation) is ErrorCode.NONE
    assert refusal(lambda: group.commit(as_consumer, classic.generation - 1)) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        (MigrationPolicy.DISABLED, False, False),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.BIDIRECTIONAL, True, True),
    ],
)
def test_the_policy_says_which_way_a_live_group_may_go(
    policy: MigrationPolicy, upgrades: bool, downgrades: bool
) -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=0, migration_policy=policy)
    group = DrivenConsumers(settings, orders=4)
    classic = lone_classic(group)
    logged = len(group.log)
    refused = refusal(lambda: group.join(Consumer("new")))
    assert refused is (ErrorCode.NONE if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
    if not upgrades:
        assert len(group.log) == logged and classic.heartbeat() is ErrorCode.NONE

    group = DrivenConsumers(settings, orders=4)
    (new,) = group.joined(1)
    classic = Classic(group)
    classic.join()
    classic.sync()
    group.leave(new)
    (listed,) = group.shard.listed()
    assert listed.kind == ("classic" if downgrades else "consumer")


def test_an_empty_group_changes_its_kind_whatever_the_policy() -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=0, migration_policy=MigrationPolicy.DISABLED)
    group = DrivenConsumers(settings, orders=4)
    classic = lone_classic(group)
    group.classic_leave(LeaveRequest(classic.member_id, None))
    (new,) = group.joined(1)
    assert new.indexes() == {0, 1, 2, 3}
    group.leave(new)
    lone_classic(group)
    assert group.replayed(group.log).durable_state() == group.shard.durable_state()


def test_a_classic_group_that_is_no_consumer_group_is_left_alone() -> None:
    group = DrivenConsumers(orders=4)
    request = join_request(protocol_type="connect", needs_known_id=False)
    group.classic_join(request)
    assert refusal(lambda: group.join(Consumer("new"))) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_refused_join_leaves_the_classic_group_as_it_was() -> None:
    group = DrivenConsumers(orders=4)
    classic = lone_classic(group)
    logged = len(group.log)
    assert refusal(lambda: group.join(Consumer("new", regex="("))) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert classic.heartbeat() is ErrorCode.NONE and len(group.log) == logged


def test_those_who_wait_for_a_classic_rebalance_are_told_to_join_again() -> None:
    group = DrivenConsumers(orders=4)
    classic = lone_classic(group)
    waiting = Classic(group)
    assert waiting.join() is None, "it waits for the other"
    group.join(Consumer("new"))
    (answer,) = [each for each in group.answers.values() if getattr(each, "member_id", "") == waiting.member_id][-1:]
    assert answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.join() is not None and waiting.sync() is ErrorCode.NONE
    assert classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_gives_a_partition_twice_is_taken_over_once() -> None:
    group = DrivenConsumers(orders=4)
    first, second = Classic(group), Classic(group)
    first.join()
    first.sync({first.member_id: assignment(0)})
    assert second.join() is None
    answer = first.join()
    assert answer is not None
    second.joined(next(each for each in group.answers.values() if getattr(each, "member_id", "") == second.member_id
                       and each.error is ErrorCode.NONE))  # fmt: skip
    first.sync({first.member_id: assignment(0, 1), second.member_id: assignment(1, 2)})
    second.sync()
    new = Consumer("new")
    group.join(new)
    stored = [event for event in group.log if isinstance(event, GroupStored)]
    assert stored
    owned = [set(each.indexes) for member in group.described.members for each in member.assigned]
    assert sum(map(len, owned)) == len(set[int]().union(*owned))
