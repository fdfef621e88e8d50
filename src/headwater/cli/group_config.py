"""The settings of groups that the commands change: resources of type GROUP."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headwater.cli.client import explain
from headwater.gateway.kafka import blocking

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

SUBSCRIPTION = "headwater.subscription."
TOPIC, KIND = f"{SUBSCRIPTION}topic", f"{SUBSCRIPTION}kind"
RETENTION, PAUSED = f"{SUBSCRIPTION}retention.ms", f"{SUBSCRIPTION}paused"
OFFSET_RESET = "share.auto.offset.reset"


def alter_group_config(
    client: "AdminClient", group: str, bootstrap: str, *, set: Mapping[str, str] = {}, delete: Iterable[str] = ()
) -> None:
    """All changes together or none."""
    from confluent_kafka import KafkaException

    try:
        blocking.alter_group_config(client, group, set=set, delete=delete)
    except KafkaException as error:
        raise explain(error.args[0], bootstrap, group=group) from error
