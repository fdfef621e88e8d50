"""While several members want records, each is lent its part; who is alone takes what it asks for."""

import pytest

from headwater.queues.fair_lending import ABSENT_MS, QUICK_MS, FairLending, Supply
from tests.queues.sharing_world import START_MS, SharingWorld

LEASE_MS = 30_000
LONG_AGO, NOW = 1_000_000, 2_000_000
MEMBERS = [f"m{number}" for number in range(6)]
TOTAL = 6_000


def ready(count: int, room: int = 2_000, lent: int = 0) -> Supply:
    return Supply(ready=0, fresh=count, room=room, lent=lent)


def part(lending: FairLending, member: str, supply: Supply, max_records: int = 500, now_ms: int = NOW) -> int | None:
    return lending.part(member, supply, max_records, LEASE_MS, now_ms)


def lending_to(*waiting: str, since_ms: int = LONG_AGO) -> FairLending:
    lending = FairLending()
    for member in waiting:
        lending.waits(member, since_ms)
    return lending


def seen_at_work(lending: FairLending, member: str, count: int, in_ms: int) -> None:
    lending.took(member, count, count, NOW - in_ms)
    lending.resolved(member, count, NOW)


def world(handler_ms: int, **settings: bool | int) -> SharingWorld:
    return SharingWorld(dict.fromkeys(MEMBERS, handler_ms), **settings)


def busiest_by_mean(world: SharingWorld) -> float:
    return max(world.handled.values()) * len(MEMBERS) / sum(world.handled.values())


# How large a part is


def test_who_is_alone_takes_what_it_asks_for() -> None:
    assert part(FairLending(), "a", ready(3_000)) is None
    assert part(lending_to("a"), "a", ready(3_000)) is None


def test_what_is_ready_is_divided_by_those_who_want_it() -> None:
    lending = lending_to(*MEMBERS)
    left, parts = 100, []
    for member in MEMBERS:
        taken = part(lending, member, ready(left, lent=100 - left)) or left
        lending.took(member, taken, taken, NOW)
        parts.append(taken)
        left -= taken
    assert (parts, left) == ([17, 17, 17, 17, 16, 16], 0)


def test_no_part_is_more_than_was_asked_for_or_than_may_be_lent() -> None:
    lending = lending_to("b", "c")
    assert part(lending, "a", ready(1_000_000, room=2_000)) == 500
    assert part(lending, "a", ready(1_000_000, room=300)) == 100
    assert part(lending, "a", ready(1_000_000, room=1)) == 1


def test_who_works_counts_when_nobody_waits() -> None:
    lending = FairLending()
    lending.took("b", 100, 100, NOW - 1_000)
    assert part(lending, "a", ready(300, lent=100)) == 200, "as if nobody had anything yet"
    seen_at_work(lending, "a", 100, in_ms=10_000)
    assert part(lending, "a", ready(300, lent=100)) == 150, "b comes back soon"
    assert part(lending, "a", ready(300), now_ms=NOW - 1_000 + LEASE_MS) is None, "b holds nothing any more"


def test_who_is_gone_counts_no_more() -> None:
    lending = lending_to("b")
    lending.took("c", 100, 100, NOW)
    lending.gone("b")
    lending.gone("c")
    assert part(lending, "a", ready(300)) is None


def test_quick_members_are_not_given_crumbs() -> None:
    lending = lending_to("b", "c", "d", since_ms=NOW - QUICK_MS + 1)
    seen_at_work(lending, "a", 500, in_ms=20)
    assert part(lending, "a", ready(500)) is None


def test_what_a_member_is_through_with_in_a_turn_it_is_lent_at_once() -> None:
    lending = lending_to("b", "c", "d", since_ms=NOW - QUICK_MS + 1)
    seen_at_work(lending, "a", 100, in_ms=1_000)
    assert part(lending, "a", ready(400)) == 100
    assert part(lending, "a", ready(40)) == QUICK_MS // 10


def test_who_has_waited_for_a_turn_gets_its_part_of_quick_members_too() -> None:
    lending = lending_to("b", "c", "d", since_ms=NOW - QUICK_MS)
    seen_at_work(lending, "a", 500, in_ms=20)
    assert part(lending, "a", ready(400)) == 100


def test_a_member_between_two_fetches_still_waits_but_not_for_long() -> None:
    lending = lending_to("b")
    lending.went("b", NOW)
    assert part(lending, "a", ready(10), now_ms=NOW + ABSENT_MS - 1) == 5
    assert part(lending, "a", ready(10), now_ms=NOW + ABSENT_MS) is None
    lending.went("c", NOW)
    assert part(lending, "a", ready(10)) is None, "c never waited"


def test_renewing_a_lease_is_no_sign_of_speed() -> None:
    lending = lending_to("b", since_ms=NOW)
    lending.took("a", 100, 100, NOW - 1_000)
    lending.resolved("a", 0, NOW - 1)
    lending.resolved("a", 100, NOW)
    assert part(lending, "a", ready(30)) == QUICK_MS // 10


def test_who_was_served_elsewhere_waits_no_more() -> None:
    lending = lending_to("b")
    lending.served("b")
    assert part(lending, "a", ready(10)) is None


def test_who_waited_leaves_their_part_to_those_who_work() -> None:
    lending = lending_to("a")
    for member in ("b", "c", "d", "e"):
        lending.took(member, 1, 1, NOW)
    assert part(lending, "a", ready(500, lent=4)) == 101
    assert part(lending, "a", ready(500, lent=4_000)) == 500


def test_records_that_a_filter_will_leave_out_are_not_divided() -> None:
    lending = lending_to("b", "c")
    lending.took("a", 10, 1_000, NOW)
    lending.waits("a", NOW)
    assert part(lending, "b", ready(900)) == 3
    assert part(lending, "b", Supply(ready=90, fresh=0, room=2_000)) == 30, "what was released is known"


def test_a_filter_that_was_never_used_is_taken_to_leave_few() -> None:
    lending = lending_to("b", "c")
    lending.begin(has_filter=True)
    assert part(lending, "a", ready(900)) == 30
    lending.took("a", 500, 500, NOW)
    assert part(lending, "b", ready(900), max_records=1_000) == 297, "this one leaves all"


# What comes of it


@pytest.mark.parametrize("handler_ms", [1, 5, 50])
@pytest.mark.parametrize("batch", [1, 40, 500, 5_000])
@pytest.mark.parametrize("load", ["burst", "bursts", "stream"])
def test_the_busiest_member_handles_no_more_than_twice_the_mean(load: str, batch: int, handler_ms: int) -> None:
    shared = world(handler_ms, record_lock_duration_ms=60_000)
    batches = max(TOTAL // batch, 1)
    every_ms = {"burst": 0, "bursts": 3 * batch * handler_ms // len(MEMBERS), "stream": batch * handler_ms // 5}[load]
    shared.run((number * every_ms, batch) for number in range(batches))
    assert busiest_by_mean(shared) <= 2


@pytest.mark.parametrize("handler_ms", [2, 50])
def test_a_burst_keeps_all_members_at_work(handler_ms: int) -> None:
    shared = world(handler_ms)
    shared.run([(0, 3_000)])
    took_ms = shared.now_ms - START_MS
    assert took_ms <= 1.5 * 3_000 * handler_ms / len(MEMBERS)


def test_a_burst_into_the_midst_of_single_records_is_divided_all_the_same() -> None:
    shared = world(50, record_lock_duration_ms=60_000)
    shared.run([*((number * 10, 1) for number in range(60)), (610, 5_000)])
    assert busiest_by_mean(shared) <= 1.2


def test_slow_members_get_less() -> None:
    paces = dict.fromkeys(MEMBERS, 2) | {"m0": 20}
    shared = SharingWorld(paces, max_records=50)
    shared.run([(0, 3_000)])
    assert shared.handled["m0"] < min(shared.handled[member] for member in MEMBERS[1:]) / 3


def test_a_group_that_does_not_want_it_lends_whole_batches() -> None:
    shared = world(2, is_fair=False)
    shared.run([(0, 3_000)])
    assert busiest_by_mean(shared) > 5


def test_quick_members_with_a_backlog_take_whole_batches() -> None:
    """Each batch is asked for once, however many want it."""
    shared = world(0, max_record_locks=10_000)
    shared.run((0, 500) for _ in range(200))
    divided = [number for _, number in shared.loans if number < 500]
    assert len(divided) <= 2 * len(MEMBERS)
