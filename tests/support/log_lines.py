"""What Headwater has logged. Clients of other tests that still look for their broker log into the same capture."""

import logging

import pytest


def own_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """An event is logged under the name of the module that logs it."""
    return [record for record in caplog.records if record.name.partition(".")[0] in ("headwater", "tests")]


def own_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in own_records(caplog)]
