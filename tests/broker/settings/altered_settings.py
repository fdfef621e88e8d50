"""Settings of a running broker, altered as a client does it."""

from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from tests.support.messages import nested
from tests.support.wire import ask

PRODUCE, METADATA, CREATE, INIT_PRODUCER, DESCRIBE, INCREMENTAL, HEARTBEAT = 0, 3, 19, 22, 32, 44, 68
BROKER, LOGGER = 4, 8
SET, DELETE = 0, 1


def alter(broker: Broker, name: str, kind: int = BROKER, **configs: str | None) -> None:
    changes = [
        nested(name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value)
        for key, value in configs.items()
    ]
    asked = [nested(resource_type=kind, resource_name=name, configs=changes)]
    (answer,) = ask(broker, INCREMENTAL, 1, resources=asked, validate_only=False).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def heartbeat_interval_ms(broker: Broker, group: str) -> int:
    answer = ask(
        broker, HEARTBEAT, 1, group_id=group, member_id="m", member_epoch=0, instance_id=None, rack_id=None,
        rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], subscribed_topic_regex=None, server_assignor=None,
        topic_partitions=[],
    )  # fmt: skip
    assert answer.error_code == ErrorCode.NONE
    interval_ms: int = answer.heartbeat_interval_ms
    return interval_ms
