"""What the tests cost, as CPU seconds: a plugin of pytest that adds up what each unit of the schedule used, with every
process that it started, and how long it took. CPU seconds mean the same beside other work on the machine; time on the
clock does not.

    make test-times                                    # the suite
    python -m pytest -p tools.suite_times tests/cli    # a part of it
    python -m pytest -p tools.suite_times --each-test tests/cli

A unit (tests/support/schedule.py) runs in one worker from its first test to its last, so the longest is the least that
the suite takes.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support import schedule

TICKS = os.sysconf("SC_CLK_TCK")
MOST_UNITS = 40
STARTING = "starting and collecting"
CONTROLLER = "the controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process and all that it started used until now."""

    self_cpu_s: float
    others_cpu_s: float
    wall_s: float

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            self_cpu_s=self.self_cpu_s - other.self_cpu_s,
            others_cpu_s=self.others_cpu_s - other.others_cpu_s,
            wall_s=self.wall_s - other.wall_s,
        )


class Times:
    """One process of pytest: a worker, its controller, or the only one."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._before = Usage(self_cpu_s=0.0, others_cpu_s=0.0, wall_s=time.monotonic())
        self._used: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self._tests: Counter[str] = Counter()

    def pytest_collection_finish(self) -> None:
        self._add(STARTING)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        this = self._unit(item)
        try:
            return (yield)
        finally:
            self._tests[this] += 1
            if nextitem is None or self._unit(nextitem) != this:
                self._add(this)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for unit, used in getattr(node, "workeroutput", {}).get("suite_times", {}).items():
            self._used[unit] = [sum(pair) for pair in zip(self._used[unit], used[:3], strict=True)]
            self._tests[unit] += used[3]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["suite_times"] = {unit: [*used, self._tests[unit]] for unit, used in self._used.items()}

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._config.pluginmanager.has_plugin("dsession"):
            alone = usage(os.getpid()) - self._before
            self._used[CONTROLLER] = [alone.self_cpu_s, 0.0, alone.wall_s]  # its workers have told of themselves
        for line in _table(self._by_folder(), "folders") + _table(self._rows(), "units, most expensive first"):
            terminalreporter.write_line(line)

    def _unit(self, item: pytest.Item) -> str:
        if self._config.getoption("each_test"):
            return item.nodeid
        return schedule.unit(self._config.rootpath, item.nodeid)

    def _add(self, unit: str) -> None:
        now = usage(os.getpid())
        used = now - self._before
        self._before = now
        self._used[unit] = [
            sum(pair) for pair in zip(self._used[unit], (used.self_cpu_s, used.others_cpu_s, used.wall_s), strict=True)
        ]

    def _rows(self) -> list[tuple[str, int, list[float]]]:
        rows = [(unit, self._tests[unit], used) for unit, used in self._used.items()]
        return sorted(rows, key=lambda row: -row[2][0] - row[2][1])[:MOST_UNITS]

    def _by_folder(self) -> list[tuple[str, int, list[float]]]:
        folders: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        tests: Counter[str] = Counter()
        for unit, used in self._used.items():
            folder = "/".join(Path(unit).parts[:2]) if unit.startswith("tests/") else unit
            for into in (folder, "all"):
                folders[into] = [sum(pair) for pair in zip(folders[into], used, strict=True)]
                tests[into] += self._tests[unit]
        return sorted(((folder, tests[folder], used) for folder, used in folders.items()), key=lambda r: -sum(r[2][:2]))


def usage(root: int) -> Usage:
    """What a process, what it waited for and what still runs below it have used. What was orphaned is not counted."""
    stats = {pid: stat for pid in _pids() if (stat := _stat(pid)) is not None}
    below: dict[int, list[int]] = defaultdict(list)
    for pid, (parent, *_) in stats.items():
        below[parent].append(pid)
    self_s = stats[root][1]
    others_s = stats[root][2]
    waiting = list(below[root])
    while waiting:
        pid = waiting.pop()
        others_s += stats[pid][1] + stats[pid][2]
        waiting += below[pid]
    return Usage(self_cpu_s=self_s, others_cpu_s=others_s, wall_s=time.monotonic())


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _stat(pid: int) -> tuple[int, float, float] | None:
    """The parent, the seconds of the process, and those of the children that it waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    ticks = [int(field) for field in fields[11:15]]
    return int(fields[1]), (ticks[0] + ticks[1]) / TICKS, (ticks[2] + ticks[3]) / TICKS


def _table(rows: list[tuple[str, int, list[float]]], title: str) -> list[str]:
    lines = ["", f"{title:60} {'tests':>6} {'CPU s':>8} {'pytest':>8} {'others':>8} {'wall s':>8}"]
    for name, tests, (self_s, others_s, wall_s) in rows:
        lines.append(f"{name:60} {tests:6} {self_s + others_s:8.1f} {self_s:8.1f} {others_s:8.1f} {wall_s:8.1f}")
    return lines


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--each-test", action="store_true", help="what each test used, with its fixtures")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times(config), "suite-times")
