"""Requests with any values in their fields."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from headwater.wire.message import Message
from headwater.wire.schema import Struct, StructField

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def messages(schema: Struct) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: values(field) for field in schema.fields})


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
        for name in answer.__slots__:
            if name == "error_code":
                yield getattr(answer, name)
            else:
                yield from error_codes(getattr(answer, name))
    elif isinstance(answer, list | tuple):
        for value in answer:
            yield from error_codes(value)
