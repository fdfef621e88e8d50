"""The classes of messages: made from the table of all messages, and strict about the names of fields."""

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mypy import api

from headwater.wire import message
from headwater.wire.message_classes import request_class, response_class
from headwater.wire.schema import Struct, StructField, request_schema, response_schema
from headwater.wire.typed.heartbeat import HeartbeatResponse
from tests.support.messages import build, nested
from tests.wire.every_version import every_version

ROOT = Path(__file__).parents[2]
WIRE = ROOT / "src/headwater/wire"

HANDLER = """
from headwater.wire.requests import read_response
from headwater.wire.typed.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(request: HeartbeatRequest) -> HeartbeatResponse:
    if request.group_id:
        return HeartbeatResponse(error_code=1)
    if request.group:  # wrong
        return HeartbeatResponse(error=1)  # wrong
    response = HeartbeatResponse(error_code="none")  # wrong
    response.error = 1  # wrong
    return request  # wrong


response = read_response(b"", HeartbeatRequest, 4, 1)
print(response.error_code)
print(response.error)  # wrong
"""


def test_a_misspelt_field_is_an_error_of_the_type_checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = tmp_path / "handler.py"
    handler.write_text(HANDLER)
    monkeypatch.chdir(ROOT)
    cache = ["--cache-dir", str(tmp_path / "cache")]

    output, problems, _ = api.run(["--config-file", "pyproject.toml", *cache, message.__file__, str(handler)])

    assert problems == ""
    wrong = [number for number, line in enumerate(HANDLER.splitlines(), 1) if line.endswith("# wrong")]
    assert [int(number) for number in re.findall(r"handler\.py:(\d+): error", output)] == wrong, output


def test_a_misspelt_field_is_an_error_of_the_run() -> None:
    misspelt: Any = HeartbeatResponse
    with pytest.raises(TypeError, match="unexpected keyword argument 'error'"):
        misspelt(error=1)
    response: Any = HeartbeatResponse()
    with pytest.raises(AttributeError, match="no attribute 'error'"):
        response.error = 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'topic'"):
        build(request_class(3), topics=[nested(topic="t")])


def test_the_classes_are_those_that_the_generator_writes(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'tools');"
        "import generate_messages; generate_messages.write(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=True)
    style = ["--quiet", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    subprocess.run([sys.executable, "-m", "ruff", "format", *style, str(tmp_path)], check=True)
    generated = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.py")}
    shipped = {str(path.relative_to(WIRE)): path.read_text() for path in (WIRE / "typed").glob("*.py")}
    shipped["api_keys.py"] = (WIRE / "api_keys.py").read_text()
    assert generated == shipped, "run `make schemas`"


def test_a_class_has_the_fields_of_all_versions() -> None:
    fields: defaultdict[Any, set[str]] = defaultdict(set)
    for message_class, schema in every_struct():
        fields[message_class].update(field.name for field in schema.fields)
    for each, names in fields.items():
        assert set(each.__slots__) == names, each


def test_a_field_that_is_left_out_can_be_written_in_every_version() -> None:
    """Null is a default only where all versions that have the field allow it."""
    for message_class, schema in every_struct():
        defaults = message_class.__init__.__kwdefaults__ or {}
        for field in schema.fields:
            if defaults.get(field.name, "") is None:
                assert may_be_left_out(field), (message_class, field.name)


def may_be_left_out(field: StructField) -> bool:
    return field.is_nullable or field.tag is not None


def every_struct() -> Iterator[tuple[Any, Struct]]:
    for api_key, version in every_version():
        yield from _structs(request_class(api_key), request_schema(api_key, version))
        yield from _structs(response_class(api_key), response_schema(api_key, version))


def _structs(message_class: Any, schema: Struct) -> Iterator[tuple[Any, Struct]]:
    yield message_class, schema
    for field in schema.fields:
        if isinstance(field.type, Struct):
            yield from _structs(message_class.STRUCTS[field.name], field.type)
