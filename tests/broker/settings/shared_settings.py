"""Broker settings of nodes that share their metadata."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.broker_settings import BrokerSettings
from headwater.metadata.sqlite.store import SqliteMetaStore


class Nodes:
    """Settings of several nodes that share their metadata."""

    def __init__(self, metadata: SqliteMetaStore) -> None:
        self.metadata = metadata

    async def start(self, node_id: int = 1, **file: object) -> BrokerSettings:
        settings = BrokerSettings(self.metadata, BrokerConfig.load(None, node_id=node_id, **file))
        await settings.load()
        return settings


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Nodes]:
    metadata = await SqliteMetaStore.open(str(directory / "metadata.db"))
    try:
        yield Nodes(metadata)
    finally:
        await metadata.close()
