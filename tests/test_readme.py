"""The README's tour works as it is written: its blocks are run in their order, and print what it says they print."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.testing import Broker

README = Path(__file__).parent.parent / "README.md"
DEFAULT_ADDRESS = "127.0.0.1:9092"
ANYTHING = "…"


@dataclass(frozen=True)
class Block:
    language: str
    file_name: str
    text: str
    expected: str | None
    """What it prints, if the README says so."""


def tour() -> Iterator[Block]:
    section = README.read_text().split("\n## A one-minute tour\n")[1].split("\n## ")[0]
    fences = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    for fence, following in zip(fences, [*fences[1:], ("", "", "")], strict=True):
        language, file_name, text = fence
        if language != "text":
            yield Block(language, file_name, text, following[2] if following[0] == "text" else None)


def run(block: Block, broker: Broker, folder: Path) -> str:
    text = block.text.replace(DEFAULT_ADDRESS, broker.bootstrap)
    if block.file_name:
        (folder / block.file_name).write_text(text)
        return ""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HEADWATER_BOOTSTRAP": broker.bootstrap}
    command = {"sh": ["bash", "-eu", "-c", text], "python": [sys.executable, "-c", text]}[block.language]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_tour_prints_what_it_says(headwater_subprocess: Broker, tmp_path: Path) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("the tour uses kcat, which is not installed")
    blocks = list(tour())
    assert {block.language for block in blocks} == {"sh", "python"}
    for block in blocks:
        printed = run(block, headwater_subprocess, tmp_path)
        if block.expected is not None:
            pattern = ".*".join(map(re.escape, block.expected.split(ANYTHING)))
            assert re.fullmatch(pattern, printed), f"{block.text}\n{printed}"
