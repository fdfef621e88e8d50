"""A subscription ended: the position goes, and the settings with it.

A group is deleted when it has no members, and whatever joins it afterwards makes it anew. So the push is stopped by a
setting first, which every gateway sees: none of them begins it again, and gateways that push it leave. If the group
cannot be deleted because consumers read it, the push goes on as before.
"""

import contextlib

from headwater.client.admin.groups import delete_group
from headwater.client.asyncio_cluster import PATIENCE_S, AsyncioCluster, retried
from headwater.client.errors import BrokerRefused, ClientError
from headwater.gateway.kafka.group_configs import alter_group, group_configs
from headwater.gateway.subscriptions.catalog import SubscriptionInfo
from headwater.gateway.subscriptions.push_settings import STOPPED, URL
from headwater.model.errors import ErrorCode

DELETING = "the subscription is being deleted"
OTHERS_S = 10.0
"""How long other gateways may take to see that they are to leave, and to finish what is under way."""


async def end(cluster: AsyncioCluster, info: SubscriptionInfo) -> None:
    """No member of this gateway may be in the group, nor join it meanwhile. Raises ClientError."""
    is_pushed = info.config.values.get(URL, "") != "" and info.config.values.get(STOPPED, "") in ("", DELETING)
    if is_pushed:
        await alter_group(cluster, info.name, set={STOPPED: DELETING})
    try:
        await _delete_group(cluster, info.name, waits_for_others=is_pushed)
    except ClientError:
        if is_pushed:
            await alter_group(cluster, info.name, delete=[STOPPED])
        raise
    # A group's other settings outlive it, as in Kafka; a subscription's do not.
    own = (await group_configs(cluster, [info.name]))[info.name].own
    await alter_group(cluster, info.name, delete=own)
    if is_pushed:
        # A gateway that had read the settings before they changed may have joined since. It leaves when it reads them
        # again. Members that stay are consumers of their own.
        with contextlib.suppress(BrokerRefused):
            await _delete_group(cluster, info.name, waits_for_others=True)


async def _delete_group(cluster: AsyncioCluster, name: str, *, waits_for_others: bool) -> None:
    """Nothing happens if the group does not exist."""
    patience_s, also = (OTHERS_S, {ErrorCode.NON_EMPTY_GROUP}) if waits_for_others else (PATIENCE_S, set())
    try:
        await retried(lambda: cluster.answer(delete_group(name)), patience_s=patience_s, also=also)
    except BrokerRefused as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
