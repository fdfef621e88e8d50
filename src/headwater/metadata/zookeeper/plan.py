"""From a transaction of the contract to one of ZooKeeper, and from ZooKeeper's answer back. No I/O.

ZooKeeper creates, sets, deletes and checks; it has no "put", and its versions start again at 0 with each creation. So
the contract's version is the node's mzxid, the number of the transaction that wrote it, which is never used
twice. The nodes are read first, and the plan holds only if they are still what was read: each step names the data
version that it found. A step that fails because a condition does not hold refuses the transaction; any other failed
step means that the plan is out of date, and nothing has happened.

Between the reading and the commit a node could be deleted, created again and brought to the same data version; this is
what the contract's rule excludes: a key that anyone compares is never created again.
"""

import enum
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError

from headwater.metadata.store import Condition, Has, Is, Operation, Put
from headwater.metadata.zookeeper.paths import ZookeeperPaths

ANY_VERSION: Final = -1
NO_OWNER: Final = 0
"""The owner of a node that belongs to no session."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A node as it was read."""

    version: int
    data_version: int
    owner: int


@dataclass(frozen=True, slots=True)
class CreateNode:
    path: str
    value: bytes
    is_ephemeral: bool


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    value: bytes
    data_version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    data_version: int


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    data_version: int


Action: TypeAlias = CreateNode | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class Step:
    action: Action
    is_condition: bool
    """Whether its failure says that a condition does not hold."""


@dataclass(frozen=True, slots=True)
class Writer:
    """The session that a transaction writes for."""

    owner: int
    mark: str
    """Path of the node that is there while the session lives."""


class Verdict(enum.Enum):
    DONE = enum.auto()
    REFUSED = enum.auto()
    """A condition does not hold."""
    OUT_OF_DATE = enum.auto()
    """The nodes are no longer what was read, or a folder is missing."""


def keys_to_read(conditions: Sequence[Condition], operations: Sequence[Operation]) -> list[str]:
    """A key that must be absent need not be read: creating it shows."""
    absent = {condition.key for condition in conditions if isinstance(condition, Is) and condition.version == 0}
    compared = [condition.key for condition in conditions if isinstance(condition, Is)]
    written = [operation.key for operation in operations]
    return [key for key in dict.fromkeys(compared + written) if key not in absent]


def plan(
    paths: ZookeeperPaths,
    conditions: Sequence[Condition],
    operations: Sequence[Operation],
    seen: Mapping[str, Seen],
    writer: Writer | None,
) -> list[Step] | None:
    """The steps, or None when a condition does not hold by what was seen. `seen` lacks the keys that are absent."""
    conditions_of: defaultdict[str, set[Condition]] = defaultdict(set)
    for condition in conditions:
        conditions_of[condition.key].add(condition)
    written = {operation.key for operation in operations}
    if not all(_may_hold(its, seen.get(key), key in written) for key, its in conditions_of.items()):
        return None
    steps = [Step(Check(writer.mark, ANY_VERSION), is_condition=True)] if writer is not None else []
    for key, its_conditions in conditions_of.items():
        if key not in written:
            steps += _conditions_alone(paths.node(key), its_conditions, seen.get(key))
    for operation in operations:
        is_compared = any(isinstance(condition, Is) for condition in conditions_of.get(operation.key, ()))
        path, node = paths.node(operation.key), seen.get(operation.key)
        if isinstance(operation, Put):
            owner = writer.owner if writer is not None and operation.session is not None else NO_OWNER
            steps += [Step(action, is_compared) for action in _put(path, operation.value, owner, node)]
        elif node is not None:
            steps.append(Step(Delete(path, node.data_version), is_compared))
        else:
            steps += _must_be_absent(path, is_compared)
    return steps


def judge(steps: Sequence[Step], results: Sequence[object]) -> Verdict:
    """What ZooKeeper's answer to the steps means. Raises an error that no plan explains."""
    for step, result in zip(steps, results, strict=True):
        if not isinstance(result, Exception) or isinstance(result, RolledBackError):
            continue
        is_folder_missing = isinstance(step.action, CreateNode) and isinstance(result, NoNodeError)
        if not isinstance(result, NoNodeError | NodeExistsError | BadVersionError):
            raise result
        return Verdict.REFUSED if step.is_condition and not is_folder_missing else Verdict.OUT_OF_DATE
    return Verdict.DONE


def _may_hold(conditions: set[Condition], node: Seen | None, is_written: bool) -> bool:
    """What is not written and only has to exist, or to be absent, was not read: that is left to ZooKeeper."""
    versions = {condition.version for condition in conditions if isinstance(condition, Is)}
    must_exist = any(isinstance(condition, Has) for condition in conditions)
    if len(versions) > 1 or (0 in versions and must_exist):
        return False
    if versions and 0 not in versions:
        return node is not None and node.version in versions
    return not (must_exist and is_written and node is None)


def _conditions_alone(path: str, conditions: set[Condition], node: Seen | None) -> list[Step]:
    if any(isinstance(condition, Is) and condition.version == 0 for condition in conditions):
        return _must_be_absent(path, is_condition=True)
    return [Step(Check(path, node.data_version if node is not None else ANY_VERSION), is_condition=True)]


def _put(path: str, value: bytes, owner: int, node: Seen | None) -> list[Action]:
    if node is not None and node.owner == owner:
        return [SetData(path, value, node.data_version)]
    # ZooKeeper answers with the transaction's number when a node is set, not when it is created.
    created: list[Action] = [CreateNode(path, b"", is_ephemeral=owner != NO_OWNER), SetData(path, value, 0)]
    # A node's owner cannot be changed.
    return created if node is None else [Delete(path, node.data_version), *created]


def _must_be_absent(path: str, is_condition: bool) -> list[Step]:
    """There is no check for absence. A node that is created and deleted in one transaction was never there."""
    return [
        Step(CreateNode(path, b"", is_ephemeral=False), is_condition),
        Step(Delete(path, ANY_VERSION), is_condition),
    ]
