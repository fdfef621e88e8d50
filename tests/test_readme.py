"""The README's tour works as it is written: its blocks are run in their order, and print what it says they print."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from headwater.testing import Broker
from headwater.transport.ports import free_port, free_ports_in_a_row

README = Path(__file__).parent.parent / "README.md"
DEFAULT_ADDRESS = "127.0.0.1:9092"
DEFAULT_HTTP = "127.0.0.1:8080"
ANYTHING = "…"
TIMEOUT_S = 100


@dataclass(frozen=True)
class Block:
    language: str
    file_name: str
    text: str
    expected: str | None
    """What it prints, if the README says so."""


def blocks_of(title: str) -> Iterator[Block]:
    section = README.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    fences = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    for fence, following in zip(fences, [*fences[1:], ("", "", "")], strict=True):
        language, file_name, text = fence
        if language != "text":
            yield Block(language, file_name, text, following[2] if following[0] == "text" else None)


def run(block: Block, bootstrap: str, folder: Path) -> str:
    text = block.text.replace(DEFAULT_ADDRESS, bootstrap)
    if block.file_name:
        (folder / block.file_name).write_text(text)
        return ""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HEADWATER_BOOTSTRAP": bootstrap}
    command = {"sh": ["bash", "-eu", "-c", text], "python": [sys.executable, "-c", text]}[block.language]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_tour_prints_what_it_says(headwater_subprocess: Broker, tmp_path: Path) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("the tour uses kcat, which is not installed")
    blocks = list(blocks_of("A one-minute tour"))
    assert {block.language for block in blocks} == {"sh", "python"}
    for block in blocks:
        check(block, run(block, headwater_subprocess.bootstrap, tmp_path))


def test_http_answers_what_it_says(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the section uses curl, which is not installed")
    (block,) = blocks_of("HTTP, webhooks, schemas and a page")
    http = f"127.0.0.1:{free_port()}"
    with Broker(subprocess=True, http=http) as broker:
        until_answered(http)
        there = replace(block, text=block.text.replace(DEFAULT_HTTP, http))
        check(block, run(there, broker.bootstrap, tmp_path))


def test_a_secured_broker_is_two_commands_away(tmp_path: Path) -> None:
    start, use = blocks_of("A secured broker")
    init, serve = start.text.replace("0.0.0.0:9093", f"127.0.0.1:{free_port()}").splitlines()
    run(replace(start, text=init), "", tmp_path)
    # Without what has a port that another broker may have; and the first command of the other terminal waits for it.
    served = [f"{Path(sys.executable).parent}/{serve}", "--http", "off", "--metrics", "off"]
    broker = subprocess.Popen(" ".join(served).split(), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None and broker.stdout.readline(), "it says where it listens"
        check(use, run(use, "", tmp_path))
    finally:
        broker.terminate()
        broker.communicate(timeout=60)


def until_answered(http: str) -> None:
    """The gateway starts after the broker."""
    address = f"http://{http}/readyz"
    subprocess.run(["curl", "-sf", "--retry", "60", "--retry-delay", "1", "--retry-all-errors", address], check=True)


def check(block: Block, printed: str) -> None:
    if block.expected is not None:
        pattern = ".*".join(map(re.escape, block.expected.split(ANYTHING)))
        assert re.fullmatch(pattern, printed), f"{block.text}\n{printed}"


def test_a_cluster_loses_nothing_when_a_node_is_killed(tmp_path: Path) -> None:
    (block,) = blocks_of("A cluster")
    port = free_ports_in_a_row(3)
    start = "headwater cluster up --nodes 3 --no-logs &"
    assert start in block.text
    # On other ports, silent, and stopped at the end as Ctrl-C would.
    quiet = f"headwater cluster up --nodes 3 --no-logs --port {port} > up.log 2>&1 &\ntrap 'kill -INT %1; wait' EXIT"
    there = replace(block, text=f"set -m\n{block.text.replace(start, quiet)}")
    check(block, run(there, f"127.0.0.1:{port}", tmp_path))
