"""A broker for the tests of one module that want nothing else of it."""

from collections.abc import Iterator

import pytest

from headwater.testing.broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
