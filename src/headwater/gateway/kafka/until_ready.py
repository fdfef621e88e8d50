"""Requests that are repeated while the cluster is not ready for them."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headwater.client.asyncio_cluster import repeated
from headwater.gateway.kafka.errors import ClusterNotReady

PATIENCE_S = 5.0

T = TypeVar("T")


async def retry_until_ready(ask: Callable[[], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """Only for requests that read. Raises ClusterNotReady when the time is up, and other failures at once."""
    return await repeated(ask, lambda error: isinstance(error, ClusterNotReady), patience_s=patience_s)
