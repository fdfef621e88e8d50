"""Who is limited, and for how long: greedy clients on a clock of the test, and more of them than there is room for."""

import heapq
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.quota_entities import Metered, QuotaLimit
from headwater.security.quota_meters import (
    LONGEST_RATE_WAIT_MS,
    MAX_METERS,
    ByteMeter,
    HeldMeter,
    MeterTable,
    MutationMeter,
    RateMeter,
)
from headwater.security.quota_window import (
    LONGEST_WAIT_MS,
    WHOLE_WINDOW_S,
    SampledRate,
    TokenBucket,
    whole_wait_ms,
)

LIMIT = 1_000.0
LONG_MS = 1_800_000


def run(clients: int, send: Callable[[int, int], int], until_ms: int = LONG_MS) -> None:
    """Clients that send again as soon as they may; a millisecond or more passes between."""
    random = Random(3)
    due = [(number, number) for number in range(clients)]
    while due[0][0] < until_ms:
        now_ms, client = heapq.heappop(due)
        heapq.heappush(due, (now_ms + send(client, now_ms) + random.randrange(1, 20), client))


@pytest.mark.parametrize("connections", [1, 4])
@pytest.mark.parametrize("size_bytes", [500, 2_000, 9_000, 11_000, 30_000])
def test_greedy_producers_get_their_limit_and_no_more(size_bytes: int, connections: int) -> None:
    meter, sent = ByteMeter(), [0] * connections

    def produce(client: int, now_ms: int) -> int:
        sent[client] += size_bytes
        return meter.charge(size_bytes, LIMIT, now_ms)

    run(connections, produce)
    per_second = sum(sent) / (LONG_MS / 1_000)
    assert 0.9 * LIMIT <= per_second <= 1.05 * LIMIT + connections * size_bytes / (LONG_MS / 1_000)
    assert min(sent) >= 0.5 * max(sent)


@pytest.mark.parametrize("connections", [1, 4])
@pytest.mark.parametrize("batch_bytes", [500, 1_600, 9_000, 16_000])
@pytest.mark.parametrize("most", ["room", "ten seconds"])
def test_greedy_consumers_get_their_limit_and_no_more(most: str, batch_bytes: int, connections: int) -> None:
    meter, got = ByteMeter(), [0] * connections

    def fetch(client: int, now_ms: int) -> int:
        wait_ms = meter.owed_ms(LIMIT, now_ms)
        if wait_ms:
            return wait_ms
        max_bytes = meter.room_bytes(LIMIT, now_ms) if most == "room" else int(LIMIT) * 10
        size_bytes = max(max_bytes // batch_bytes, 1) * batch_bytes
        got[client] += size_bytes
        return meter.charge(size_bytes, LIMIT, now_ms)

    run(connections, fetch)
    per_second = sum(got) / (LONG_MS / 1_000)
    assert 0.9 * LIMIT <= per_second <= 1.05 * LIMIT + batch_bytes / (LONG_MS / 1_000)
    assert min(got) >= 0.4 * max(got)


@pytest.mark.parametrize("batch_bytes", [1_200, 5_000, 10_000, 50_000, 1_000_000])
def test_a_consumer_gets_a_batch_that_is_larger_than_its_limit(batch_bytes: int) -> None:
    meter, now_ms, batches = ByteMeter(), 0, 0
    for _ in range(10):
        wait_ms = meter.owed_ms(LIMIT, now_ms)
        if not wait_ms:
            assert meter.room_bytes(LIMIT, now_ms) <= LIMIT * 10
            wait_ms = meter.charge(batch_bytes, LIMIT, now_ms)
            batches += 1
        now_ms += max(wait_ms, 1)
    assert batches >= 5
    assert batches * batch_bytes <= LIMIT * (10 + now_ms / 1_000) + batch_bytes


def test_a_wait_is_never_shorter_than_kafkas() -> None:
    random = Random(5)
    meter, rate, now_ms = ByteMeter(), SampledRate(), 0
    for _ in range(500):
        now_ms += random.choice([1, 100, 1_000, 3_000, 15_000])
        size_bytes = random.choice([100, 2_000, 8_000, 20_000])
        rate.record(size_bytes, now_ms)
        assert meter.charge(size_bytes, LIMIT, now_ms) >= whole_wait_ms(rate.wait_ms(LIMIT, now_ms))


def test_bytes_that_are_taken_back_were_not_used() -> None:
    one, other = ByteMeter(), ByteMeter()
    for now_ms in range(0, 30_000, 700):
        one.charge(800, LIMIT, now_ms)
        other.charge(800, LIMIT, now_ms)
        other.charge(50_000, LIMIT, now_ms)
        other.take_back(50_000, LIMIT, now_ms)
        assert other.owed_ms(LIMIT, now_ms) == one.owed_ms(LIMIT, now_ms)
        assert other.room_bytes(LIMIT, now_ms) == pytest.approx(one.room_bytes(LIMIT, now_ms), abs=1)
        assert other.per_second(now_ms) == one.per_second(now_ms)


class PlainByteMeter:
    """A ByteMeter that collects nothing."""

    def __init__(self) -> None:
        self.rate, self.bucket = SampledRate(), TokenBucket(WHOLE_WINDOW_S)

    def charge(self, size_bytes: int, limit: float, now_ms: int) -> int:
        self.rate.record(size_bytes, now_ms)
        self.bucket.take(size_bytes, limit, now_ms)
        return whole_wait_ms(self.wait_ms(limit, now_ms))

    def wait_ms(self, limit: float, now_ms: int) -> float:
        return max(self.rate.wait_ms(limit, now_ms), self.bucket.wait_ms(limit, now_ms))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 7, 90, 400, 999, 1_000, 1_001, 4_000, 11_000, 30_000]),
            st.one_of(st.integers(0, 400), st.integers(0, 12_000)),
            st.sampled_from([LIMIT, LIMIT, LIMIT, 300.0, 5_000.0]),
            st.sampled_from(["charge", "charge", "charge", "owed", "room", "rate"]),
        ),
        max_size=60,
    )
)
def test_what_is_collected_counts_as_if_it_were_not(usage: list[tuple[int, int, float, str]]) -> None:
    meter, plain, now_ms = ByteMeter(), PlainByteMeter(), 0
    for gap_ms, size_bytes, limit, step in usage:
        now_ms += gap_ms
        match step:
            case "charge":
                assert meter.charge(size_bytes, limit, now_ms) == plain.charge(size_bytes, limit, now_ms)
            case "owed":
                assert meter.owed_ms(limit, now_ms) == int(plain.wait_ms(limit, now_ms))
            case "room":
                exact = min(plain.rate.room(limit, now_ms), plain.bucket.tokens(limit, now_ms), limit * WHOLE_WINDOW_S)
                room_bytes = meter.room_bytes(limit, now_ms)
                assert room_bytes <= max(exact, 0) and (room_bytes > limit or room_bytes == max(int(exact), 0))
            case "rate":
                assert meter.per_second(now_ms) == pytest.approx(plain.rate.per_second(now_ms))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 7, 400, 999, 1_000, 1_001, 11_000]),
            st.one_of(st.integers(0, 40), st.integers(0, 1_200)),
            st.sampled_from([50.0, 50.0, 50.0, 20.0, 300.0]),
            st.sampled_from(["charge", "charge", "charge", "charge and count", "rate"]),
        ),
        max_size=60,
    )
)
def test_time_that_is_collected_counts_as_if_it_were_not(usage: list[tuple[int, int, float, str]]) -> None:
    meter, plain, now_ms = RateMeter(), SampledRate(), 0
    for gap_ms, percents, limit, step in usage:
        now_ms += gap_ms
        if step == "rate":
            assert meter.per_second(now_ms) == pytest.approx(plain.per_second(now_ms))
            continue
        plain.record(percents, now_ms)
        wait_ms = whole_wait_ms(plain.wait_ms(limit, now_ms), LONGEST_RATE_WAIT_MS)
        assert meter.charge(percents, limit, now_ms) == wait_ms
        if step == "charge and count":
            plain.record(3, now_ms)
            meter.count(3, now_ms)


def test_usage_far_from_the_limit_is_collected() -> None:
    meter = ByteMeter()
    meter.charge(1, LIMIT, 0)
    before = meter._rate._sum
    assert meter.charge(500, LIMIT, 10) == 0 and meter._rate._sum == before
    assert meter.per_second(20) == 501 / 10.02


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 30_000)), max_size=30))
def test_what_there_is_room_for_may_be_used_without_a_wait(usage: list[tuple[int, int]]) -> None:
    meter, now_ms = ByteMeter(), 0
    for gap_ms, size_bytes in usage:
        now_ms += gap_ms
        meter.charge(size_bytes, LIMIT, now_ms)
    owed_ms = meter.owed_ms(LIMIT, now_ms)
    room_bytes = meter.room_bytes(LIMIT, now_ms)
    assert owed_ms == 0 or room_bytes == 0
    assert room_bytes == 0 or meter.charge(room_bytes, LIMIT, now_ms) == 0


def test_a_meter_without_room_still_tells_a_wait_that_fits() -> None:
    meter = ByteMeter()
    assert meter.charge(2**31, 1e-9, 0) == LONGEST_WAIT_MS
    assert meter.owed_ms(1e-9, 0) == LONGEST_WAIT_MS
    assert meter.room_bytes(1e-9, 0) == 0


def test_the_wait_for_time_of_the_loop_is_a_second_at_most() -> None:
    meter = RateMeter()
    assert meter.charge(500, 50, 0) == 0
    assert meter.charge(20, 50, 0) == 400
    assert meter.charge(10_000, 50, 0) == 1_000
    assert meter.charge(0, 50, 12_000) == 0
    assert meter.per_second(12_000) == 0


def test_a_connection_that_is_not_accepted_is_not_counted() -> None:
    meter, accepted = RateMeter(), 0
    for now_ms in range(0, 60_000, 10):
        if meter.charge(1, 5, now_ms):
            meter.take_back(1, now_ms)
        else:
            accepted += 1
    assert 0.9 * 5 * 60 <= accepted <= 5 * 60 + 50


def test_mutations_are_admitted_until_more_were_done_than_the_burst() -> None:
    meter = MutationMeter()
    assert [meter.admit(4, 1, 0) for _ in range(4)] == [0, 0, 0, 1_000]  # of a burst of 11: -1 left
    assert meter.admit(100, 1, 1_000) == 0
    assert meter.admit(1, 1, 1_000) == 100_000
    assert meter.admit(1, 1, 101_000) == 0


def test_mutations_that_are_done_in_any_case_are_paid_for() -> None:
    meter = MutationMeter()
    assert meter.charge(11, 1, 0) == 0
    assert meter.charge(2, 1, 0) == 2_000
    assert meter.charge(1, 1, 1_000) == 2_000


def test_a_refusal_of_mutations_always_has_a_wait() -> None:
    meter = MutationMeter()
    meter.charge(12, 1, 0)
    assert meter.admit(1, 1, 999) == 1
    meter = MutationMeter()
    meter.charge(11_001, 1_000, 0)
    assert meter.admit(1, 100_000, 0) == 1


def test_a_hundred_thousand_names_take_no_more_room_than_a_thousand() -> None:
    table = MeterTable(ByteMeter)
    for number in range(100_000):
        table.meter(Metered(client_id=f"app-{number}"), number // 100).charge(5_000, LIMIT, number // 100)
    assert len(table) == MAX_METERS


def test_a_hundred_thousand_names_that_are_all_over_their_limit_share_one() -> None:
    table, passed = MeterTable(ByteMeter), 0
    for number in range(100_000):
        meter = table.meter(Metered(client_id=f"app-{number}"), 0)
        if not meter.owed_ms(LIMIT, 0):
            passed += 1
            assert meter.charge(20_000, LIMIT, 0) == 10_000
    assert len(table) == MAX_METERS
    assert passed == MAX_METERS + 1
    assert len(list(table)) == MAX_METERS


def test_a_client_that_waits_is_not_forgotten_into_a_fresh_allowance() -> None:
    table, alice = MeterTable(ByteMeter, max_meters=10), Metered("alice", "app")
    assert table.meter(alice, 0).charge(40_000, LIMIT, 0) == 30_000
    for number in range(1_000):
        table.meter(Metered("bob", f"app-{number}"), 1 + number).charge(100, LIMIT, 1 + number)
    assert table.meter(alice, 2_000).owed_ms(LIMIT, 2_000) >= 28_000
    for number in range(1_000):
        table.meter(Metered("bob", f"app-{number}"), 30_000 + number).charge(100, LIMIT, 30_000 + number)
    assert table.meter(alice, 31_000).room_bytes(LIMIT, 31_000) == 1_000
    for number in range(1_000):
        table.meter(Metered("bob", f"app-{number}"), 43_000 + number).charge(100, LIMIT, 43_000 + number)
    assert alice not in dict(table)
    assert len(table) == 10


def test_a_client_that_owes_partitions_is_kept_for_as_long() -> None:
    table, alice, now_ms = MeterTable(MutationMeter, max_meters=2), Metered("alice", "app"), 0
    assert table.meter(alice, 0).admit(3_611, 1, 0) == 0
    for now_ms in range(0, 3_600_000, 60_000):
        for number in range(5):
            table.meter(Metered("alice", f"app-{now_ms}-{number}"), now_ms).admit(1, 1, now_ms)
    assert table.meter(alice, now_ms).admit(1, 1, now_ms) == 3_600_000 - now_ms


def test_the_client_that_was_used_longest_ago_is_forgotten() -> None:
    table = MeterTable(ByteMeter, max_meters=3)
    names = [Metered(client_id=str(number)) for number in range(4)]
    meters = [table.meter(name, 0) for name in names[:3]]
    assert table.meter(names[0], 1) is meters[0]
    table.meter(names[3], 2)
    assert set(dict(table)) == {names[0], names[2], names[3]}


def used(held: HeldMeter[ByteMeter], size_bytes: int, now_ms: int) -> int:
    """As requests use it."""
    meter = held.recall()
    if meter is not None and meter.collect(size_bytes, held.value, now_ms):
        return 0
    return held.meter(now_ms).charge(size_bytes, held.value, now_ms)


def test_connections_that_hold_a_meter_share_it() -> None:
    table, name = MeterTable(ByteMeter), Metered(client_id="app")
    one, two = HeldMeter(table, QuotaLimit(LIMIT, name)), HeldMeter(table, QuotaLimit(LIMIT, name))
    assert [used(held, 1_000, 5) for held in (one, two) * 5] == [0] * 10
    assert used(one, 1_000, 5) == 1_000 and used(two, 1_000, 5) == 2_000
    assert table.meter(name, 5).per_second(5) == 1_200


def test_a_meter_that_is_held_is_forgotten_as_any_other_and_looked_up_again() -> None:
    table, name = MeterTable(ByteMeter, max_meters=3), Metered(client_id="app")
    held = HeldMeter(table, QuotaLimit(LIMIT, name))
    used(held, 100, 0)
    assert held.recall() is dict(table)[name]
    for number in range(3):
        table.meter(Metered(client_id=f"app-{number}"), 1)
    assert name not in dict(table) and held.recall() is None
    used(held, 300, 2)
    assert dict(table)[name].per_second(2) == 30 and len(table) == 3


def test_a_meter_that_is_held_and_used_is_known_to_be_in_use() -> None:
    table, name = MeterTable(ByteMeter, max_meters=3), Metered(client_id="app")
    held = HeldMeter(table, QuotaLimit(LIMIT, name))
    for now_ms in range(0, 60_000, 500):
        used(held, 100, now_ms)
        if now_ms % 1_000 == 0:
            table.meter(Metered(client_id=f"app-{now_ms}"), now_ms)
    assert dict(table)[name].per_second(60_000) > 100


def test_there_is_room_again_when_the_waits_are_over() -> None:
    table = MeterTable(ByteMeter, max_meters=5)
    for number in range(5):
        table.meter(Metered(client_id=f"greedy-{number}"), 0).charge(11_000, LIMIT, 0)
    crowded = table.meter(Metered(client_id="new"), 1)
    assert table.meter(Metered(client_id="newer"), 1) is crowded
    late = table.meter(Metered(client_id="new"), 20_000)
    assert late is not crowded
    assert table.meter(Metered(client_id="newer"), 20_000) is not late
    assert len(table) == 5


def test_names_of_clients_displace_no_user() -> None:
    table = MeterTable(ByteMeter, max_meters=10)
    alice, address = table.meter(Metered("alice"), 0), table.meter(Metered(ip="10.0.0.7"), 0)
    for number in range(1_000):
        table.meter(Metered(client_id=f"app-{number}"), 1).charge(90_000, LIMIT, 1)
        table.meter(Metered("bob", f"app-{number}"), 1).charge(90_000, LIMIT, 1)
    assert table.meter(Metered("alice"), 2) is alice
    assert table.meter(Metered(ip="10.0.0.7"), 2) is address
    assert len(table) == 12


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from([0, 50, 5_000, 30_000]), st.integers(0, 25_000)), max_size=80
    )
)
def test_a_meter_that_owes_is_always_the_same_one(usage: list[tuple[int, int, int]]) -> None:
    """Against a table that forgets nothing: of a client that waits, the bounded one says the same."""
    table, model, now_ms = MeterTable(ByteMeter, max_meters=4), dict[Metered, ByteMeter](), 0
    for number, gap_ms, size_bytes in usage:
        now_ms += gap_ms
        name = Metered(client_id=str(number))
        before = dict(table)
        meter = table.meter(name, now_ms)
        if meter is not table._clients._shared:
            known = model.setdefault(name, meter)
            assert known is meter or (name not in before and known.recovered_ms <= now_ms)
            model[name] = meter
            meter.charge(size_bytes, LIMIT, now_ms)
        assert all(each.owed_ms(LIMIT, now_ms) == 0 or each is dict(table)[owing] for owing, each in model.items())
        assert len(table) <= 4


def test_a_meter_remembers_how_often_and_how_long_its_client_had_to_wait() -> None:
    meter = ByteMeter()
    for now_ms in (0, 1_000):
        meter.charge(15_000, LIMIT, now_ms)
    assert (meter.violations, meter.throttled_ms) == (2, 5_000 + 20_000 - 1_000 + 1_000)
    assert meter.waits_ms(1_000) == 20_000 and meter.waits_ms(30_000) == 0


def test_mutations_that_were_not_done_are_given_back() -> None:
    meter = MutationMeter()
    for _ in range(5):
        assert meter.admit(100, 1, 0) == 0
        meter.take_back(100, 1, 0)
    assert meter.recovered_ms <= 11_000 and meter.per_second(0) == 0
    assert meter.admit(100, 1, 0) == 0 and meter.admit(1, 1, 0) > 0


def test_those_who_wait_and_those_who_were_here_last_are_shown_first() -> None:
    table = MeterTable(ByteMeter, max_meters=3)
    names = [Metered(client_id=str(number)) for number in range(3)]
    table.meter(names[0], 0).charge(1_000_000, LIMIT, 0)
    for name in names[1:]:
        table.meter(name, 0)
    table.meter(Metered(client_id="new"), 0)
    table.meter(Metered(user="alice"), 0)
    assert [metered for metered, _ in table] == [
        Metered(user="alice"), names[0], Metered(client_id="new"), names[2]
    ]  # fmt: skip
