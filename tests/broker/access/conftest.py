"""One broker, and no bindings at the start of a test."""

from collections.abc import Iterator

import pytest

from tests.support.guarded import Guarded, guarded_broker


@pytest.fixture(scope="module")
def shared_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


@pytest.fixture
def guarded(shared_guarded: Guarded) -> Iterator[Guarded]:
    yield shared_guarded
    shared_guarded.forget_bindings()


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Nothing is refused, and what would be is recorded."""
    with guarded_broker(tmp_path_factory.mktemp("observed"), authorization="observe") as observed:
        yield observed
