"""Nonsense to the share APIs: each request is answered with an error code, none is the broker's own mistake, and a
queue that is attacked still hands out every record once."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.broker.handlers import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from headwater.wire.schema import request_schema
from tests.broker.hostile_requests import error_codes, messages
from tests.broker.queues.queue_brokers import numbered, produced, queue_broker
from tests.broker.queues.share_members import ACCEPT, ACKNOWLEDGE, FETCH, Member, on_loop
from tests.support.messages import nested
from tests.support.wire import ask

MODULES = [
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
]
EXTREMES = [-(2**63), -1, 0, 1, 5, 9, 10, 2**31, 2**63 - 1]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.API.name)
def test_nonsense_is_answered(broker: Broker, module: Any) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def nonsense(data: st.DataObject) -> None:
        version = data.draw(st.integers(module.API.min_version, module.API.max_version))
        request = data.draw(messages(request_schema(module.API.key, version)))
        if module is share_fetch:
            request["max_wait_ms"] = min(request["max_wait_ms"], 20)  # Else it may rightly wait.
        answer = ask(broker, module.API.key, version, **request)
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in error_codes(answer)

    nonsense()


@on_loop
async def test_a_queue_under_attack_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(20261115)
    async with queue_broker(tmp_path) as (broker, client):
        attacker, worker = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, *numbered(10))
        fetched = await worker.fetch(wait_ms=1000)
        assert fetched.offsets == list(range(10))
        for _ in range(150):
            batches = [
                nested(
                    first_offset=chance.choice(EXTREMES),
                    last_offset=chance.choice(EXTREMES),
                    acknowledge_types=[chance.randint(-128, 127) for _ in range(chance.choice([0, 1, 1, 2, 11]))],
                )
                for _ in range(chance.randint(1, 3))
            ]
            partition = nested(partition_index=chance.choice([0, 0, 0, -1, 2**31 - 1]), acknowledgement_batches=batches)
            topics = [nested(topic_id=attacker.topic_id, partitions=[partition] * chance.randint(1, 2))]
            fields: dict[str, Any] = {
                "group_id": "g",
                "member_id": attacker.member_id,
                "share_session_epoch": attacker.session_epoch,
                "topics": topics,
                "is_renew_ack": chance.random() < 0.5,
            }
            if chance.random() < 0.5:
                answer = await client.ask(ACKNOWLEDGE, 2, **fields)
            else:
                numbers = {"min_bytes": 0, "max_bytes": 0, "max_records": 0, "max_wait_ms": 0, "batch_size": -1}
                answer = await client.ask(FETCH, 2, **fields, **numbers, share_acquire_mode=0, forgotten_topics_data=[])
            if answer.error_code == 0:
                attacker.session_epoch += 1
            assert ErrorCode.UNKNOWN_SERVER_ERROR not in error_codes(answer)
        assert await worker.acknowledge((0, 9, ACCEPT)) == 0
        assert (await attacker.fetch(wait_ms=50)).offsets == []
        assert broker.shares.of_group("g")[0].share.start_offset == 10
