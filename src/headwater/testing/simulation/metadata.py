"""A linearizable store of keys with versions and compare-and-set transactions, as `metadata/store.py` promises it.

Values are the objects themselves, for speed. A list is no snapshot: with `torn_lists` it is read in two halves with
time between them. An outage is a process that does not answer; a transaction may have been applied just before. Apart
from that some answers to transactions get lost that were applied (`lost_answers`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from headwater.metadata.keys import head_key, sealed_prefix, staged_prefix
from headwater.model.ids import PartitionId, TopicId
from headwater.testing.simulation.network import Process, Reply, SimulatedNetwork
from headwater.testing.simulation.swarm import Swarm
from headwater.testing.simulation.world import World

TOPIC = TopicId(int=1)
PARTITION = PartitionId(TOPIC, 0)
HEAD = head_key(PARTITION)
SEALED = sealed_prefix(PARTITION)
STAGED = staged_prefix(PARTITION)


class Item(NamedTuple):
    version: int
    value: Any


ABSENT = Item(0, None)

Conditions: TypeAlias = Sequence[tuple[str, int]]
"""Keys and the versions they must have; 0 for a key that must not exist."""
Operations: TypeAlias = Sequence[tuple[str, Any]]
"""Keys and their new values; None deletes."""


class SimulatedMetadata(Process):
    def __init__(self, world: World, network: SimulatedNetwork, changed: Callable[[], None], swarm: Swarm) -> None:
        super().__init__("metadata")
        self.items: dict[str, Item] = {}
        self._world = world
        self._network = network
        self._changed = changed
        self._torn_lists = swarm.torn_lists
        self._lost_answers = swarm.lost_answers
        self._revision = 0
        self._watchers: list[tuple[Process, Callable[[], None]]] = []

    def watch(self, process: Process, hint: Callable[[], None]) -> None:
        """Hints that the head may have changed; they get lost like everything else."""
        self._watchers.append((process, hint))

    def get(self, reply: Reply, key: str) -> None:
        reply(self.items.get(key, ABSENT))

    def list_below(self, reply: Reply, prefix: str) -> None:
        if not self._torn_lists or self._world.chance(0.5):
            reply({key: item for key, item in self.items.items() if key.startswith(prefix)})
            return
        middle = f"{prefix}{self._world.random.choice('0123456789abcdef')}"
        upper = {key: item for key, item in self.items.items() if key.startswith(prefix) and key >= middle}
        self._world.after(0.01 * self._world.random.random(), self._list_rest, reply, prefix, middle, upper)

    def _list_rest(self, reply: Reply, prefix: str, middle: str, upper: dict[str, Item]) -> None:
        lower = {key: item for key, item in self.items.items() if key.startswith(prefix) and key < middle}
        reply(lower | upper)

    def txn(self, reply: Reply, conditions: Conditions, operations: Operations) -> None:
        """The new revision, which is the version of every key written, or 0 if a condition does not hold."""
        outcome = self.apply(conditions, operations)
        if not self._world.chance(self._lost_answers):
            reply(outcome)

    def apply(self, conditions: Conditions, operations: Operations) -> int:
        if not self.holds(conditions):
            self._world.counts["transactions lost"] += 1
            return 0
        self._revision += 1
        is_head = False
        for key, value in operations:
            is_head = is_head or key == HEAD
            if value is None:
                self.items.pop(key, None)
            else:
                self.items[key] = Item(self._revision, value)
        self._changed()
        if is_head:
            for process, hint in self._watchers:
                self._network.tell(self, process, hint)
        return self._revision

    def holds(self, conditions: Conditions) -> bool:
        return all(self.items.get(key, ABSENT).version == version for key, version in conditions)

    def value(self, key: str) -> Any:
        return self.items.get(key, ABSENT).value

    def below(self, prefix: str) -> list[Any]:
        return [item.value for key, item in self.items.items() if key.startswith(prefix)]
