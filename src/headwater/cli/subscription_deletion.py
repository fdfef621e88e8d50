"""Deletes a subscription, as a gateway does (`gateway/subscriptions/ending`): the push is stopped first, or the
gateways that push it would join its group again."""

import time
from typing import TYPE_CHECKING

from headwater.cli.client import REQUEST_TIMEOUT_S, explain
from headwater.cli.group_requests import alter_group_config
from headwater.gateway.kafka.blocking import group_configs

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PAUSE_S = 0.25


def delete_subscription(client: "AdminClient", name: str, bootstrap: str) -> None:
    """Delete its position and its settings. Raises CommandFailed."""
    from confluent_kafka import KafkaException

    from headwater.gateway.subscriptions.ending import DELETING
    from headwater.gateway.subscriptions.push_settings import STOPPED, URL

    config = group_configs(client, [name])[name].own
    is_pushed = bool(config.get(URL)) and config.get(STOPPED, "") in ("", DELETING)
    if is_pushed:
        alter_group_config(client, name, bootstrap, set={STOPPED: DELETING})
    try:
        _delete_group(client, name, waits_for_gateways=is_pushed)
    except KafkaException as error:
        if is_pushed:
            alter_group_config(client, name, bootstrap, delete=[STOPPED])
        raise explain(error.args[0], bootstrap, group=name) from error
    # Settings outlive a group in Kafka. A subscription that is deleted takes them along.
    alter_group_config(client, name, bootstrap, delete=group_configs(client, [name])[name].own)


def _delete_group(client: "AdminClient", name: str, *, waits_for_gateways: bool) -> None:
    from confluent_kafka import KafkaError, KafkaException

    from headwater.gateway.subscriptions.ending import OTHERS_S

    until_s = time.monotonic() + OTHERS_S * waits_for_gateways
    while True:
        (future,) = client.delete_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S).values()
        try:
            future.result()
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NON_EMPTY_GROUP or time.monotonic() >= until_s:
                raise
        time.sleep(PAUSE_S)
