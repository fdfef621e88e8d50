"""What holds for every test: how long an example takes is never judged; what only repeats is left to the long suite;
tests that share something expensive run in one worker."""

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from headwater.testing.processes import forks
from tests.support import schedule
from tests.support.effort import IS_LONG

if TYPE_CHECKING:
    from xdist.remote import Producer

pytest.register_assert_rewrite("headwater.testing.oracles.metadata_conformance")  # tests that back ends inherit

if not IS_LONG:
    forks.prefer_forks()  # the long suite starts each broker as people do

settings.register_profile("headwater", settings(), deadline=None)
settings.load_profile("headwater")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is imported and collected stays until the end: looking through it for garbage took as long as all else in a
    collection, and went on in every test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not IS_LONG:
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    schedule.in_order(config.rootpath, items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer | None") -> schedule.FileScheduling:
    return schedule.FileScheduling(config, log)
