"""The shapes that are shipped are those of the kio package, and all of them can be read and written."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.wire.codec import struct_writer
from headwater.wire.messages import request_reader
from headwater.wire.schema import UnknownMessage, request_schema, response_schema
from tests.wire.every_version import every_version

ROOT = Path(__file__).parent.parent.parent


def test_the_shipped_table_is_the_one_that_kio_gives() -> None:
    program = "import sys; sys.path.insert(0, 'tools'); import generate_schemas as g; sys.stdout.write(g.generate())"
    generated = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True).stdout
    assert generated == (ROOT / "src/headwater/wire/schemas.json").read_bytes(), "run `make schemas`"


def test_every_message_has_a_reader_and_a_writer() -> None:
    for api_key, version in every_version():
        request_reader(api_key, version)
        struct_writer(response_schema(api_key, version))


@pytest.mark.parametrize(("api_key", "version"), [(999, 0), (3, 99), (-1, 0)])
def test_an_unknown_message_is_a_clear_error(api_key: int, version: int) -> None:
    with pytest.raises(UnknownMessage):
        request_schema(api_key, version)
