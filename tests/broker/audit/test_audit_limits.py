"""What an audit costs at most, and what it leaves out: floods, excluded principals, a topic that cannot be written."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from headwater.broker.access.login_outcome import LoginOutcome
from headwater.broker.access.topic_use import TopicUse
from headwater.broker.audit import audit_writer, pending_events
from headwater.broker.audit.audit_event import AuditKind, AuditRecord, AuditVerdict
from headwater.broker.audit.auditor import Auditor
from headwater.broker.server import Broker
from headwater.broker.settings.broker_config import BrokerConfig, ConfigError
from headwater.model.cluster import AUDIT_TOPIC
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import moment
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import Principal
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.support.eventually import until
from tests.support.local_broker import Client, running

GUARDED: dict[str, Any] = {"authorization": "on", "insecure": True, "super_users": "User:ANONYMOUS", "audit": "on"}
FLOOD = 100_000
USED = (("Produce", Operation.WRITE), ("Fetch", Operation.READ), ("OffsetCommit", Operation.READ))


def refuse(broker: Broker, user: str, topic: str, host: str = "10.0.0.9") -> None:
    access = broker.authorizer.access_of(Principal.user(user), host, "clients")
    access.api = "Produce"
    assert not access.allows(Operation.WRITE, ResourceType.TOPIC, topic)


async def records(client: Client) -> list[AuditRecord]:
    return [AuditRecord.from_json(each.value or b"") for each in await client.read_all(AUDIT_TOPIC)]


async def written(broker: Broker, client: Client, count: int) -> list[AuditRecord]:
    assert broker.audit_writer is not None
    writer = broker.audit_writer
    await until(lambda: writer.written >= count, lambda: f"{writer.written} of {count} were written")
    return await records(client)


def play(tmp_path: Path, scenario: Any, **config: Any) -> None:
    async def run() -> None:
        async with running(tmp_path, MemoryFiles(), **{**GUARDED, **config}) as (broker, client):
            await scenario(broker, client)

    asyncio.run(run())


def test_a_flood_of_refusals_is_small_and_told(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await written(broker, client, 1)
        access = broker.authorizer.access_of(Principal.user("mallory"), "10.0.0.9", "clients")
        for n in range(FLOOD):
            assert not access.allows(Operation.WRITE, ResourceType.TOPIC, f"t{n}")
        assert broker.auditor is not None
        assert len(broker.auditor.pending) <= pending_events.MAX_OF_SOURCE + 2
        found = await written(broker, client, pending_events.MAX_OF_SOURCE + 2)
        refused = [each for each in found if each.event.kind is AuditKind.AUTHORIZATION]
        assert sum(each.count for each in refused) == FLOOD
        (others,) = (each for each in refused if each.event.is_others)
        assert others.event.principal == "User:mallory" and others.count == FLOOD - pending_events.MAX_OF_SOURCE
        partition = broker.catalog.topic(AUDIT_TOPIC).partition(0)
        assert partition.size_bytes < 64 * 1024

    play(tmp_path, scenario)


def test_a_flood_from_everywhere_is_dropped_counted_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await written(broker, client, 1)
        for n in range(pending_events.MAX_EVENTS + 5_000):
            refuse(broker, "mallory", "t", host=f"10.{n // 65_536}.{n // 256 % 256}.{n % 256}")
        assert broker.auditor is not None
        pending = broker.auditor.pending
        assert len(pending) <= pending_events.MAX_EVENTS and pending.dropped_total > 5_000
        found = await written(broker, client, pending_events.MAX_EVENTS - pending_events.RESERVED)
        (told,) = (each for each in found if each.event.kind is AuditKind.OVERFLOW)
        assert told.count == pending.dropped_total
        broker.auditor.node("still-heard")
        await until(lambda: broker.catalog.topic(AUDIT_TOPIC).partition(0).high_watermark > len(found))
        assert (await records(client))[-1].event.operation == "still-heard"
        metrics = broker.metrics.gauges["audit_events_dropped"].read()
        assert list(metrics) == [((), pending.dropped_total)]

    play(tmp_path, scenario)
    assert "audit_overflow" in caplog.text


def test_observing_is_told_as_what_would_be_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        access = broker.authorizer.access_of(Principal.user("alice"), "10.0.0.9", "clients")
        assert access.allows(Operation.WRITE, ResourceType.TOPIC, "orders")
        found = await written(broker, client, 2)
        (event,) = (each.event for each in found if each.event.kind is AuditKind.AUTHORIZATION)
        assert event.verdict is AuditVerdict.WOULD_REFUSE and event.name == "orders"

    play(tmp_path, scenario, authorization="observe")
    assert "authorization_only_observed" in caplog.text


def test_of_excluded_principals_nothing_is_told(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        """Unless a login fails: it may be another's, under that name."""
        assert broker.auditor is not None
        login = LoginOutcome(
            is_let_in=True, listener="l", address="10.0.0.9", mechanism="PLAIN", principal="User:monitor"
        )
        broker.auditor.login(login)
        refuse(broker, "monitor", "t")
        refuse(broker, "alice", "t")
        broker.auditor.login(replace(login, is_let_in=False))
        found = await written(broker, client, 3)
        told = {(each.event.principal, each.event.verdict.value) for each in found}
        assert told == {("", "done"), ("User:alice", "refused"), ("User:monitor", "failed")}

    play(tmp_path, scenario, audit_exclude_principals=["User:monitor"])


def test_events_wait_for_a_topic_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And are all there when it can be; meanwhile the broker serves its clients."""

    async def scenario(broker: Broker, client: Client) -> None:
        assert broker.audit_writer is not None
        writer = broker.audit_writer
        may_write = False
        append = writer._partitions.append

        async def sometimes(*given: Any) -> None:
            if not may_write:
                raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
            await append(*given)

        with patch.object(writer._partitions, "append", sometimes), patch.object(audit_writer, "LONGEST_RETRY_S", 0.1):
            await until(lambda: writer.failures > 0)
            refuse(broker, "alice", "t")
            await client.create("served")
            may_write = True
            found = await written(broker, client, 3)
        assert {each.event.kind for each in found} >= {AuditKind.NODE, AuditKind.AUTHORIZATION, AuditKind.MANAGEMENT}

    play(tmp_path, scenario)
    assert "audit_not_written" in caplog.text


def test_a_mistake_in_the_audit_is_no_mistake_of_the_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        def failing(request: Any, response: Any) -> Any:
            raise KeyError("of ours")

        assert broker.auditor is not None
        entries = broker.dispatcher._entries
        with patch.dict(entries, {19: type(entries[19])(entries[19].api, entries[19].handle, None, failing)}):
            await client.create("made")
        assert broker.catalog.find("made") is not None

    play(tmp_path, scenario)
    assert "audit_failed" in caplog.text


def test_the_last_events_are_written_before_the_stop(tmp_path: Path) -> None:
    files = MemoryFiles()

    async def run() -> None:
        async with running(tmp_path, files, **GUARDED) as (broker, client):
            await written(broker, client, 1)
            await client.create("late")
        async with running(tmp_path, files, **{**GUARDED, "audit": "off"}) as (broker, client):
            assert [each.event.operation for each in await records(client)] == ["start", "create", "stop"]

    asyncio.run(run())


def test_without_logins_there_is_no_audit_unless_it_is_asked_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            assert broker.auditor is None and broker.catalog.find(AUDIT_TOPIC) is None

    asyncio.run(run())
    login = [{"name": "a", "protocol": "SASL_PLAINTEXT", "listen": "127.0.0.1:0"}]
    assert BrokerConfig.load(listener=login).audits and BrokerConfig.load(audit="on").audits
    assert not BrokerConfig.load(listener=login, audit="off").audits and not BrokerConfig.load().audits
    with pytest.raises(ConfigError, match="one of auto, on, off"):
        BrokerConfig.load(audit="maybe")
    with pytest.raises(ConfigError, match="User:alice"):
        BrokerConfig.load(audit_exclude_principals=["alice"])


def test_records_are_told_of_by_principal_and_topic_where_that_is_asked_for(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        assert broker.auditor is not None
        for _ in range(2):
            access = broker.authorizer.access_of(Principal.user("carol"), "10.0.0.9", "l")
            for access.api, operation in USED:
                for topic in ("a", "a", "b"):
                    assert access.allows(operation, ResourceType.TOPIC, topic)
        refused = broker.authorizer.access_of(Principal.user("alice"), "10.0.0.9", "l")
        refused.api = "Produce"
        assert not refused.allows(Operation.WRITE, ResourceType.TOPIC, "a")

        async def told() -> bool:
            data = [each for each in await records(client) if each.event.kind is AuditKind.DATA]
            seen = {(each.event.principal, each.event.operation, each.event.name): each.count for each in data}
            of_users = {use: count for use, count in seen.items() if use[0] != "User:ANONYMOUS"}
            return of_users == {
                ("User:carol", "write", "a"): 4,
                ("User:carol", "write", "b"): 2,
                ("User:carol", "read", "a"): 4,
                ("User:carol", "read", "b"): 2,
            }

        await written(broker, client, 1)
        broker.auditor.tell_uses(is_last=True)
        await until(told)

    play(tmp_path, scenario, audit_data=True, super_users="User:ANONYMOUS;User:carol")


def test_uses_that_are_too_many_are_counted_together() -> None:
    auditor = Auditor(1, ManualClock())
    with patch("headwater.broker.audit.auditor.MAX_USES", 3):
        for n in range(10):
            use = TopicUse(principal="User:a", host="h", listener="l", api="Fetch", operation="read", topic=f"t{n}")
            auditor.count_use(use).requests += 1
        count = auditor.count_use(replace(use, topic="t0"))
    auditor.tell_uses(is_last=True)
    found = auditor.pending.take(moment(auditor.clock), 100)
    assert sum(each.count for each in found) == 10
    assert [each.count for each in found if each.event.is_others] == [7]
    auditor.tell_uses(is_last=True)
    assert not auditor.has_uses, "what is not used any more is forgotten"
    assert not count.is_live, "and connections that had it ask for another"
