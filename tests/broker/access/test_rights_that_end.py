"""Rights that are taken away while a request waits, or while a transaction is open: nothing is delivered or committed
by them any more, and nothing is lost to others."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from headwater.broker.queues.share_fetching import ShareFetching, ShareFetchLimits
from headwater.broker.queues.share_rights import share_rights
from headwater.groups.rebalance import GroupState
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import Principal
from headwater.testing.fakes.clock import ManualClock
from tests.broker.access.guarded_here import GuardedHere, guarded_here
from tests.broker.queues.queue_brokers import produced, waits
from tests.broker.queues.share_members import ACCEPT, Fetched, Member, configure
from tests.broker.transactions.raw_producers import ID, Producer
from tests.broker.transactions.transactors import committed_values, partition_of
from tests.support.eventually import FOREVER_MS, until
from tests.support.messages import nested

READ, WRITE = Operation.READ, Operation.WRITE
TOPIC, GROUP, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
JOIN_GROUP = 11
Scenario = Callable[[GuardedHere], Coroutine[Any, Any, None]]


def with_queue(scenario: Scenario) -> Callable[[Path], None]:
    """A test of a topic "t" that alice and bob may read in share group "g"."""

    async def run(directory: Path) -> None:
        async with guarded_here(directory, "alice", "bob") as guarded:
            await guarded.admin.create("t")
            await configure(guarded.admin, share_auto_offset_reset="earliest")
            for user in ("alice", "bob"):
                await guarded.allow(user, READ, GROUP, "g")
                await guarded.allow(user, READ, TOPIC, "t")
            await scenario(guarded)

    def test(tmp_path: Path) -> None:
        asyncio.run(run(tmp_path))

    return test


async def member_of(guarded: GuardedHere, user: str) -> Member:
    """With a session."""
    member = Member(await guarded.client(user), guarded.broker.catalog.topic("t").topic_id)

    async def has_joined() -> bool:
        return bool((await member.heartbeat(0, "t")).error_code == 0)

    await until(has_joined, "the coordinator is loaded")
    await member.fetch()
    return member


def fetches(member: Member, **more: Any) -> "asyncio.Task[Fetched]":
    return asyncio.get_running_loop().create_task(member.fetch(wait_ms=FOREVER_MS, **more))


@with_queue
async def test_a_share_fetch_that_waits_is_told_at_once_what_it_may_no_longer_read(guarded: GuardedHere) -> None:
    alice, bob = await member_of(guarded, "alice"), await member_of(guarded, "bob")
    waiting = fetches(alice)
    await waits(guarded.broker)
    await guarded.allow("bob", WRITE, TOPIC, "t")
    assert not waiting.done(), "what changes for others does not concern it"
    await guarded.revoke("alice", READ, TOPIC, "t")
    told = await waiting
    assert (told.error_code, told.errors) == (0, {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    await produced(guarded.admin, b"later")
    again = await alice.fetch()
    assert again.records == {} and again.errors == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}, "at each request"
    assert (await bob.fetch()).values == [b"later"]
    await guarded.allow("alice", READ, TOPIC, "t")
    await produced(guarded.admin, b"granted again")
    assert (await alice.fetch()).values == [b"granted again"], "in the same session"


@with_queue
async def test_a_share_fetch_whose_group_may_not_be_read_any_more_fails_as_a_whole(guarded: GuardedHere) -> None:
    alice = await member_of(guarded, "alice")
    waiting = fetches(alice)
    await waits(guarded.broker)
    await guarded.revoke("alice", READ, GROUP, "g")
    assert (await waiting).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@with_queue
async def test_a_wake_up_that_is_of_no_use_is_passed_on(guarded: GuardedHere) -> None:
    guarded.broker.acl_bindings.watchers.clear()
    alice, bob = await member_of(guarded, "alice"), await member_of(guarded, "bob")
    first = fetches(alice)
    await waits(guarded.broker, 1)
    second = fetches(bob)
    await waits(guarded.broker, 2)
    await guarded.revoke("alice", READ, TOPIC, "t")
    await produced(guarded.admin, b"for bob")
    assert (await second).values == [b"for bob"]
    assert (await first).errors == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@with_queue
async def test_records_that_were_taken_and_may_not_be_sent_any_more_go_to_others_uncounted(
    guarded: GuardedHere,
) -> None:
    broker = guarded.broker
    alice, bob = await member_of(guarded, "alice"), await member_of(guarded, "bob")
    await produced(guarded.admin, b"a", b"b")
    session = broker.shares.sessions.get("g", alice.member_id)
    assert session is not None
    access = broker.authorizer.access_of(Principal.user("alice"), "127.0.0.1")
    limits = ShareFetchLimits(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, max_records=10)
    rights = share_rights(broker.catalog, access, "g")
    assert rights is not None
    fetching = ShareFetching(broker.shares, broker.catalog, session, limits, rights)
    (taken,) = (await fetching.run()).values()
    assert [(each.first, each.last) for each in taken.ranges] == [(0, 1)]
    assert (await bob.fetch()).records == {}
    await guarded.revoke("alice", READ, TOPIC, "t")
    assert not rights.error(uuid.uuid4()), "another question comes in between"
    (left,) = fetching.settled().values()
    assert (left.error, left.ranges, left.batches) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [], {})
    fetched = await bob.fetch()
    assert fetched.ranges == {0: [(0, 1, 1)]}, "no delivery is counted"


@with_queue
async def test_what_was_lent_before_is_not_acknowledged_and_ends_with_the_session(guarded: GuardedHere) -> None:
    alice, bob = await member_of(guarded, "alice"), await member_of(guarded, "bob")
    await produced(guarded.admin, b"a", b"b")
    assert (await alice.fetch()).offsets == [0, 1]
    await guarded.revoke("alice", READ, TOPIC, "t")
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await alice.acknowledge((0, 0, ACCEPT)) == refused
    assert (await alice.fetch(acks=[(0, 0, ACCEPT)])).acknowledge_errors == {0: refused}
    assert (await bob.fetch()).records == {}
    ended = await alice.acknowledge((0, 1, ACCEPT), session_epoch=-1)
    assert ended == refused
    assert (await bob.fetch()).ranges == {0: [(0, 1, 2)]}


@with_queue
async def test_a_request_without_the_group_leaves_the_session_as_it_is(guarded: GuardedHere) -> None:
    alice = await member_of(guarded, "alice")
    await guarded.revoke("alice", READ, GROUP, "g")
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (await alice.fetch()).error_code == refused
    assert await alice.acknowledge((0, 0, ACCEPT)) == refused
    assert (await alice.fetch(session_epoch=0)).error_code == refused
    await guarded.allow("alice", READ, GROUP, "g")
    await produced(guarded.admin, b"still the same session")
    assert (await alice.fetch()).values == [b"still the same session"]


def test_a_join_that_waited_for_a_rebalance_tells_nothing_of_a_group_that_was_taken_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        config = {"group_initial_rebalance_delay_ms": 3_000}
        async with guarded_here(tmp_path, "alice", clock=clock, **config) as guarded:
            await guarded.allow("alice", READ, GROUP, "g")
            groups, alice = guarded.broker.groups, await guarded.client("alice")
            await groups.ensure_ready()
            await until(groups.is_loaded)
            protocol = nested(name="range", metadata=b"topics")
            alice.send(
                JOIN_GROUP, 3, group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
                protocol_type="consumer", protocols=[protocol],
            )  # fmt: skip
            await until(lambda: groups.views.described("g").state is GroupState.PREPARING)
            await guarded.revoke("alice", READ, GROUP, "g")
            clock.advance(5)
            groups.tick()
            answer = await alice.answer(JOIN_GROUP, 3)
            assert (answer.error_code, list(answer.members)) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])

    asyncio.run(scenario())


def test_a_transaction_whose_id_was_taken_away_ends_as_if_it_had_never_been(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with guarded_here(tmp_path, "alice", clock=clock) as guarded:
            await guarded.admin.create("t")
            await guarded.allow("alice", WRITE, TRANSACTIONAL_ID, ID)
            await guarded.allow("alice", WRITE, TOPIC, "t")
            alice = Producer(await guarded.client("alice"))
            await alice.begin(timeout_ms=1_000)
            alice.send(b"not to be seen", 12)
            assert await alice.sent(12) == 0
            await guarded.revoke("alice", WRITE, TRANSACTIONAL_ID, ID)
            refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            alice.add(0)
            assert await alice.added() == [refused]
            alice.end(5)
            assert await alice.ended(5) == refused
            partition = partition_of(guarded.broker)
            assert partition.last_stable_offset == 0 < partition.high_watermark
            clock.advance(2)
            await until(lambda: partition.last_stable_offset == partition.high_watermark)
            assert await committed_values(guarded.admin) == []

    asyncio.run(scenario())


def test_what_is_only_observed_is_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_here(tmp_path, "alice", authorization="observe") as guarded:
            await guarded.admin.create("t")
            await configure(guarded.admin, share_auto_offset_reset="earliest")
            alice = await member_of(guarded, "alice")
            await produced(guarded.admin, b"a")
            fetched = await alice.fetch()
            assert fetched.values == [b"a"]
            await alice.accept_all(fetched)
            producer = Producer(alice.client)
            await producer.begin()
            producer.add(0)
            assert await producer.added() == [0]
            assert {("read", "group"), ("read", "topic"), ("describe", "topic"), ("write", "transactional-id")} <= set(
                guarded.broker.metrics.authorization_refusals
            )

    asyncio.run(scenario())
