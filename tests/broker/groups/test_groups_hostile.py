"""Well-formed requests that make no sense: each is answered with an error code, none is the broker's own mistake."""

import uuid
from collections.abc import Iterator
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
from headwater.wire.messages import Message
from headwater.wire.schema import Struct, StructField, request_schema
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
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def messages(schema: Struct) -> st.SearchStrategy[Message]:
    return st.builds(Message, **{field.name: values(field) for field in schema.fields})


def values(field: StructField) -> st.SearchStrategy[Any]:
    one = messages(field.type) if isinstance(field.type, Struct) else primitives(field.type)
    if field.is_array:
        one = st.lists(one, max_size=3)
    return st.none() | one if field.is_nullable else one


def primitives(kafka_type: str) -> st.SearchStrategy[Any]:
    if kafka_type in INTEGER_BITS:
        limit = 2 ** (INTEGER_BITS[kafka_type] - 1)
        return st.sampled_from([0, 1, 10_000]).filter(lambda value: value < limit) | st.integers(-limit, limit - 1)
    if kafka_type == "bool":
        return st.booleans()
    if kafka_type == "uuid":
        return st.uuids()
    if kafka_type == "string":
        return st.sampled_from(["", "g", "consumer", "\u0000", "x" * 300]) | st.text(max_size=5)
    assert kafka_type == "bytes", f"{kafka_type} is not known here"
    return st.binary(max_size=20)


def error_codes(answer: Any) -> Iterator[int]:
    if isinstance(answer, Message):
        for name, value in answer.__dict__.items():
            if name == "error_code":
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(answer, list | tuple):
        for value in answer:
            yield from error_codes(value)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.API.name)
def test_nonsense_is_answered(broker: Broker, module: Any) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def nonsense(data: st.DataObject) -> None:
        version = data.draw(st.integers(module.API.min_version, module.API.max_version))
        request = data.draw(messages(request_schema(module.API.key, version)))
        if module is join_group and request.group_id:
            request.group_id = uuid.uuid4().hex  # Else the request may rightly wait for others to join.
        answer = ask(broker, module.API.key, version, **request.__dict__)
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in error_codes(answer)

    nonsense()
