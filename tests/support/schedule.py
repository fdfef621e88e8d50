"""Which tests share a worker of pytest-xdist, and which begin first.

The tests of a file stay together, because they share brokers, clusters and browsers by fixtures of their module; all
files that take the fixture `spark` stay together, because a Spark session is the most expensive thing there is. The
folders that take longest begin, so that no worker is left alone with one of them at the end.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

SPARK = "spark"
FIRST = (
    "tests/pipelines",
    "tests/cluster",
    "tests/console",
    "tests/clients",
    "tests/metadata",
    "tests/test_readme.py",
    "tests/gateway",
    "tests/cli",
    "tests/replication",
    "tests/storage",
)


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    def __init__(self, config: pytest.Config, log: Producer | None) -> None:
        config.option.loadscopereorder = False  # the order of the collection stays: see in_order
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit(self.config.rootpath, nodeid)


def unit(root: Path, nodeid: str) -> str:
    """The name of what runs in one worker, one test after another."""
    file = nodeid.partition("::")[0]
    return SPARK if _takes_spark(root / file) else file


def in_order(root: Path, items: list[pytest.Item]) -> None:
    """Put the tests that take longest first."""
    items.sort(key=lambda item: _rank(root, item.nodeid))


def _rank(root: Path, nodeid: str) -> int:
    if unit(root, nodeid) == SPARK:
        return -1
    return next((rank for rank, place in enumerate(FIRST) if nodeid.startswith(place)), len(FIRST))


@cache
def _takes_spark(path: Path) -> bool:
    return path.parent.name == "pipelines" and re.search(r"\bspark: \"?SparkSession", path.read_text()) is not None
