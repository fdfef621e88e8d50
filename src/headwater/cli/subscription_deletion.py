"""Deletes a subscription, as a gateway does (`gateway/subscriptions/ending`): the push is stopped first, or the
gateways that push it would join its group again."""

from typing import TYPE_CHECKING

from headwater.cli.group_requests import PATIENCE_S, alter_group_config, group_configs

if TYPE_CHECKING:
    from headwater.client.blocking_cluster import BlockingCluster


def delete_subscription(cluster: "BlockingCluster", name: str) -> None:
    """Delete its position and its settings. Raises ClientError."""
    from headwater.client.errors import ClientError
    from headwater.gateway.subscriptions.ending import DELETING
    from headwater.gateway.subscriptions.push_settings import STOPPED, URL

    config = group_configs(cluster, [name])[name].own
    is_pushed = bool(config.get(URL)) and config.get(STOPPED, "") in ("", DELETING)
    if is_pushed:
        alter_group_config(cluster, name, set={STOPPED: DELETING})
    try:
        _delete_group(cluster, name, waits_for_gateways=is_pushed)
    except ClientError:
        if is_pushed:
            alter_group_config(cluster, name, delete=[STOPPED])
        raise
    # Settings outlive a group in Kafka. A subscription that is deleted takes them along.
    alter_group_config(cluster, name, delete=group_configs(cluster, [name])[name].own)


def _delete_group(cluster: "BlockingCluster", name: str, *, waits_for_gateways: bool) -> None:
    from headwater.client.admin.groups import delete_group
    from headwater.client.blocking_cluster import retried
    from headwater.gateway.subscriptions.ending import OTHERS_S
    from headwater.model.errors import ErrorCode

    question = delete_group(name)
    patience_s, also = (OTHERS_S, {ErrorCode.NON_EMPTY_GROUP}) if waits_for_gateways else (PATIENCE_S, set())
    retried(lambda: cluster.answer(question), patience_s=patience_s, also=also)
