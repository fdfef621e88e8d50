"""Well-formed requests that make no sense: each is answered with an error code, none is the broker's own mistake."""

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.broker.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from headwater.wire.schema import request_schema
from tests.broker.hostile_requests import error_codes, messages
from tests.support.wire import ask

MODULES = [
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.API.name)
def test_nonsense_is_answered(broker: Broker, module: Any) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def nonsense(data: st.DataObject) -> None:
        version = data.draw(st.integers(module.API.min_version, module.API.max_version))
        request = data.draw(messages(request_schema(module.API.key, version)))
        if module is join_group and request["group_id"]:
            request["group_id"] = uuid.uuid4().hex  # Else the request may rightly wait for others to join.
        answer = ask(broker, module.API.key, version, **request)
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in error_codes(answer)

    nonsense()
