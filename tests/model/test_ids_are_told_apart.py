"""What the type checker says of offsets, leader epochs and node ids in `src`, asked of mypy itself."""

import re
from pathlib import Path

import pytest
from mypy import api

from headwater.model import ids

ROOT = Path(__file__).parents[2]

CALLS = """
from headwater.model.ids import LeaderEpoch, NodeId, Offset, Offsets


def read_from(offset: Offset) -> None: ...
def lead_in(epoch: LeaderEpoch) -> None: ...
def send_to(node: NodeId) -> None: ...
def wait_for(count: int) -> None: ...


offset, epoch, node = Offset(7), LeaderEpoch(3), NodeId(1)

read_from(offset)
lead_in(epoch)
send_to(node)
read_from(7)  # wrong
read_from(epoch)  # wrong
read_from(node)  # wrong
lead_in(3)  # wrong
lead_in(offset)  # wrong
lead_in(node)  # wrong
send_to(1)  # wrong
send_to(offset)  # wrong
send_to(epoch)  # wrong

read_from(offset + 1)
read_from(offset - 1)
read_from(max(offset, offset + 1))
read_from(offset - offset)  # wrong
wait_for(offset - offset)
wait_for(offset)
for each in Offsets(offset, offset + 2):
    read_from(each)
"""


def test_the_type_checker_refuses_one_for_another_and_a_plain_number_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls.py"
    calls.write_text(CALLS)
    monkeypatch.chdir(ROOT)
    cache = ["--cache-dir", str(tmp_path / "cache")]

    output, problems, _ = api.run(["--config-file", "pyproject.toml", *cache, str(Path(ids.__file__)), str(calls)])

    assert problems == ""
    wrong = [number for number, line in enumerate(CALLS.splitlines(), 1) if line.endswith("# wrong")]
    assert [int(number) for number in re.findall(r"calls\.py:(\d+): error", output)] == wrong, output
    assert output.count("error: Argument 1 to") == len(wrong), output
