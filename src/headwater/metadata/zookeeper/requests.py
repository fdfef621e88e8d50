"""What is asked of ZooKeeper: functions that start a request with kazoo and return kazoo's handle of its answer.

The answer is what kazoo documents for the call, or one of its exceptions."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent

from headwater.metadata.zookeeper.plan import ANY_VERSION, Check, CreateNode, Delete, SetData, Step

Request: TypeAlias = Callable[[KazooClient], Any]
OnEvent: TypeAlias = Callable[[WatchedEvent], None]


def data(path: str, on_event: OnEvent | None = None) -> Request:
    """Value and stat, or NoNodeError."""
    return lambda kazoo: kazoo.get_async(path, watch=on_event)


def children(path: str, on_event: OnEvent | None = None) -> Request:
    """Names, or NoNodeError."""
    return lambda kazoo: kazoo.get_children_async(path, watch=on_event)


def stat(path: str, on_event: OnEvent | None = None) -> Request:
    """Stat, or None when there is no such node."""
    return lambda kazoo: kazoo.exists_async(path, watch=on_event)


def folder(path: str) -> Request:
    """Create a node and those above it, unless they are there."""
    return lambda kazoo: kazoo.ensure_path_async(path)


def mark(path: str) -> Request:
    """Create a node that belongs to the session that asks."""
    return lambda kazoo: kazoo.create_async(path, ephemeral=True)


def removal(path: str) -> Request:
    return lambda kazoo: kazoo.delete_async(path)


def through_majority(path: str) -> Request:
    """A transaction that changes nothing, and looks whether a node is there: a list of one result. What is asked for
    after it on the same connection is at least as new as the moment at which this was sent."""
    return transaction([Step(Check(path, ANY_VERSION), is_condition=True)])


def transaction(steps: Sequence[Step]) -> Request:
    """A list of results, one for each step; exceptions in all places when one of them failed."""

    def commit(kazoo: KazooClient) -> Any:
        request = kazoo.transaction()
        for step in steps:
            match step.action:
                case CreateNode(path, value, is_ephemeral):
                    request.create(path, value, ephemeral=is_ephemeral)
                case SetData(path, value, data_version):
                    request.set_data(path, value, data_version)
                case Delete(path, data_version):
                    request.delete(path, data_version)
                case Check(path, data_version):
                    request.check(path, data_version)
        return request.commit_async()

    return commit
