"""Errors of our own client as the commands tell them: what happened, and what to do."""

import pytest

from headwater.cli.brokers import Brokers
from headwater.cli.client import client_problems, explain_refusal
from headwater.cli.output import CommandFailed
from headwater.client.errors import BrokerRefused, ConnectionLost, CoordinatorUnknown
from headwater.model.errors import ErrorCode

BROKERS = Brokers("host:9092")
GROUP = "Group billing"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionLost("host:9092: no answer in time"), "The broker does not answer: host:9092: no answer in time."),
        (
            CoordinatorUnknown(ErrorCode.COORDINATOR_NOT_AVAILABLE, None, "The coordinator of billing"),
            "The coordinator of billing is not known now (error 15).",
        ),
        (BrokerRefused(ErrorCode.NON_EMPTY_GROUP, None, GROUP), f"{GROUP} has members that are running."),
        (BrokerRefused(ErrorCode.GROUP_ID_NOT_FOUND, "x", GROUP), f"{GROUP} does not exist."),
        (BrokerRefused(ErrorCode.NOT_COORDINATOR, None, GROUP), f"{GROUP} has no coordinator now."),
        (BrokerRefused(ErrorCode.INVALID_CONFIG, "Too long.", GROUP), f"{GROUP}: Too long (INVALID_CONFIG)."),
        (BrokerRefused(ErrorCode.INVALID_CONFIG, None, GROUP), f"{GROUP}: the broker answers INVALID_CONFIG."),
        (BrokerRefused(30_000, None, GROUP), f"{GROUP}: the broker answers error 30000."),
    ],
)
def test_a_refusal_is_told_in_a_sentence(error: BrokerRefused | ConnectionLost, told: str) -> None:
    failed = explain_refusal(error, BROKERS)
    assert str(failed).startswith(told)
    with pytest.raises(CommandFailed, match=r"billing|host"), client_problems(BROKERS):
        raise error
