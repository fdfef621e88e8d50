"""The settings of groups, described and changed. Everything raises ClientError."""

from collections.abc import Iterable, Mapping, Sequence

from headwater.client.admin import configs
from headwater.client.admin.configs import GroupConfig
from headwater.client.asyncio_cluster import AsyncioCluster, retried


async def configured_groups(cluster: AsyncioCluster) -> list[str]:
    """Groups with settings of their own, whether or not they were ever used."""
    return await cluster.answer(configs.configured_groups())


async def group_configs(
    cluster: AsyncioCluster, names: Sequence[str], keys: Sequence[str] | None = None
) -> dict[str, GroupConfig]:
    found: dict[str, GroupConfig] = {}
    for question in configs.group_configs(names, keys):
        answer = await cluster.answer(question)
        found |= answer
    return found


async def alter_group(
    cluster: AsyncioCluster, name: str, *, set: Mapping[str, str] = {}, delete: Iterable[str] = ()
) -> None:
    """All changes together or none. The code is INVALID_CONFIG if a value is wrong."""
    deleted = list(delete)
    if set or deleted:
        question = configs.alter_group_config(name, set=set, delete=deleted)
        await retried(lambda: cluster.answer(question))
