"""Which sealed segments need a replica more or one less, and the next step of each copy that is under way.

A copy is three steps (REPLICATION.md, 1.9): the target is announced, it pulls the segment, it becomes a replica. Each
step is decided from the key alone, so any controller can go on where another stopped. The segments with the fewest
copies come first; how many are copied at once and how fast is bounded.

No step takes away the last copy: a living replica goes only when as many others are alive as there should be, and one
that is dead only when others have taken its place.
"""

import enum
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwater.model.cluster import StoreState
from headwater.model.ids import NodeId, StoreId
from headwater.model.segments import SealedSegment
from headwater.replication.actions import Action, AnnounceCopy, Copy, DropReplicas, FinishCopy, GiveUpCopy
from headwater.replication.cluster_view import ClusterView, SealedKey
from headwater.replication.copies import CopyLedger, CopyState, cost_bytes
from headwater.replication.placement import StoreFacts, choose

MAX_DROPS = 100
"""In one plan. They are cheap, but each is a write."""


class Standing(enum.Enum):
    """What a replica is worth, by the store it is on."""

    SOUND = "sound"
    """Alive, and to stay."""
    RESTING = "resting"
    """Not alive, but not for long: it counts, though nobody can copy from it."""
    LEAVING = "leaving"
    """Alive, but the store is drained, or is not where the partition is wanted."""
    DEAD = "dead"
    """Not alive for long. It may come back."""
    LOST = "lost"
    """Somebody decided that it will not come back."""


@dataclass(frozen=True, slots=True)
class Limits:
    max_copies: int
    dead_store_s: float


@dataclass(frozen=True, slots=True)
class _Case:
    """One segment, and what is wanted for it."""

    key: SealedKey
    sealed: SealedSegment
    version: int
    standings: Mapping[StoreId, Standing]
    want: int
    wanted_nodes: tuple[NodeId, ...] | None
    """Only there, while a reassignment is under way."""

    def replicas(self, *standings: Standing) -> list[StoreId]:
        return [store for store in self.sealed.replicas if self.standings.get(store, Standing.DEAD) in standings]

    @property
    def donors(self) -> tuple[StoreId, ...]:
        return (*self.replicas(Standing.SOUND), *self.replicas(Standing.LEAVING))

    @property
    def is_short(self) -> bool:
        return len(self.replicas(Standing.SOUND, Standing.RESTING)) < self.want

    @property
    def urgency(self) -> tuple[int, SealedKey]:
        return len(self.donors), self.key


class Repair:
    """Remembers since when each store is away."""

    def __init__(self, limits: Limits, ledger: CopyLedger) -> None:
        self._limits = limits
        self._ledger = ledger
        self._away_since: dict[StoreId, float] = {}

    def observe(self, view: ClusterView, now: float) -> None:
        facts = view.store_facts
        self._away_since = {
            store: self._away_since.get(store, now) for store, fact in facts.items() if not fact.is_alive
        }
        if view.sealed is not None:
            self._ledger.forget_old(view.sealed, now)

    def plan(self, view: ClusterView, now: float) -> list[Action]:
        under_way: list[Action] = []
        drops: list[Action] = []
        short: list[_Case] = []
        announced = 0
        for case in self._cases(view, now):
            if case.sealed.adding:
                announced += 1
                step = self._next_step(case, view)
                if step is not None:
                    under_way.append(step)
            elif case.is_short:
                if case.donors:
                    short.append(case)
            elif len(drops) < MAX_DROPS and (drop := _drop(case, view)) is not None:
                drops.append(drop)
        slots = max(self._limits.max_copies - self._ledger.running, 0)
        return [*_with_few_copies(under_way, slots), *drops, *self._announce(short, announced, view, now)]

    def _cases(self, view: ClusterView, now: float) -> Iterator[_Case]:
        """Every segment that is not just as it should be."""
        assert view.sealed is not None, "repair is planned when the sealed segments are known"
        general = {store: self._standing(store, facts, now) for store, facts in view.store_facts.items()}
        sound = {store for store, standing in general.items() if standing is Standing.SOUND}
        moving = {
            partition: {store: _unless_elsewhere(general[store], view, store, item.value.nodes) for store in general}
            for partition, item in view.reassignments.items()
            if not item.value.is_complete
        }
        for key, item in view.sealed.items():
            partition, sealed = key[0], item.value
            if partition.topic_id not in view.topics:
                continue
            want = view.replicas_wanted(partition)
            if partition in moving:
                nodes = view.reassignments[partition].value.nodes
                yield _Case(key, sealed, item.version, moving[partition], want, nodes)
            elif sealed.adding or len(sealed.replicas) != want or not sound.issuperset(sealed.replicas):
                yield _Case(key, sealed, item.version, general, want, None)

    def _standing(self, store: StoreId, facts: StoreFacts, now: float) -> Standing:
        if facts.state is StoreState.LOST:
            return Standing.LOST
        if not facts.is_alive:
            is_short_absence = now - self._away_since.get(store, now) < self._limits.dead_store_s
            return Standing.RESTING if is_short_absence and facts.state is StoreState.ACTIVE else Standing.DEAD
        return Standing.SOUND if facts.state is StoreState.ACTIVE else Standing.LEAVING

    def _next_step(self, case: _Case, view: ClusterView) -> Action | None:
        partition, sealed, version = case.key[0], case.sealed, case.version
        target = sealed.adding[0]
        state = self._ledger.state(case.key, version, target)
        if state is CopyState.DONE:
            standings = {**case.standings, target: Standing.SOUND}
            kept = _settled((*sealed.replicas, target), standings, case.want, view, keep=target)
            return FinishCopy(partition, sealed, version, target, kept)
        if self._ledger.is_running(case.key, target):
            return None
        is_usable = case.standings.get(target) is Standing.SOUND and target not in sealed.replicas
        if state is CopyState.FAILED or not is_usable or not case.is_short:
            return GiveUpCopy(partition, sealed, version)
        return Copy(partition, sealed, version, target, case.donors) if case.donors else None

    def _announce(self, short: list[_Case], announced: int, view: ClusterView, now: float) -> Iterator[Action]:
        free = self._limits.max_copies - announced
        planned_bytes = 0
        # Some may have no place to go to; they must not stand in the way of the others for ever.
        for case in heapq.nsmallest(free * 16, short, key=lambda case: case.urgency) if free > 0 else []:
            if free == 0 or not self._ledger.has_budget(planned_bytes, now):
                return
            target = self._target(case, view, now)
            if target is not None:
                free -= 1
                planned_bytes += cost_bytes(case.sealed)
                yield AnnounceCopy(case.key[0], case.sealed, case.version, target)

    def _target(self, case: _Case, view: ClusterView, now: float) -> StoreId | None:
        stores: Sequence[StoreFacts] = list(view.store_facts.values())
        staying = case.replicas(Standing.SOUND, Standing.RESTING)
        if case.wanted_nodes is not None:
            filled = view.nodes_of(staying)
            stores = [it for it in stores if it.store_id in staying or it.node_id in case.wanted_nodes]
            stores = [it for it in stores if it.store_id in staying or it.node_id not in filled]
        refused = self._ledger.refused_targets(case.sealed.id, view.store_facts, now)
        avoid = refused.union(case.sealed.replicas)
        preferred = view.preferred_nodes(case.key[0])
        return next(iter(choose(stores, 1, None, avoid, case.sealed.id, beside=staying, preferred=preferred)), None)


def _unless_elsewhere(standing: Standing, view: ClusterView, store: StoreId, nodes: Sequence[NodeId]) -> Standing:
    if view.stores[store].node_id in nodes:
        return standing
    return {Standing.SOUND: Standing.LEAVING, Standing.RESTING: Standing.DEAD}.get(standing, standing)


def _with_few_copies(steps: list[Action], slots: int) -> Iterator[Action]:
    for step in steps:
        if isinstance(step, Copy):
            if slots == 0:
                continue
            slots -= 1
        yield step


def _drop(case: _Case, view: ClusterView) -> DropReplicas | None:
    kept = _settled(case.sealed.replicas, case.standings, case.want, view, keep=None)
    if kept == case.sealed.replicas:
        return None
    witnesses = tuple(store for store in kept if case.standings[store] is Standing.SOUND)
    return DropReplicas(case.key[0], case.sealed, case.version, kept, witnesses)


def _settled(
    replicas: tuple[StoreId, ...],
    standings: Mapping[StoreId, Standing],
    want: int,
    view: ClusterView,
    keep: StoreId | None,
) -> tuple[StoreId, ...]:
    """The replicas without those that are not needed, in the same order."""
    of = {store: standings.get(store, Standing.DEAD) for store in replicas}
    count = Counter(of.values())
    if not count[Standing.SOUND]:
        return replicas
    dropped = {store for store, standing in of.items() if standing is Standing.LOST}
    has_enough = count[Standing.SOUND] >= want
    if has_enough:
        dropped |= {store for store, standing in of.items() if standing is not Standing.SOUND}
    spare = count[Standing.SOUND] + count[Standing.RESTING] + count[Standing.DEAD] - want
    dead = [store for store, standing in of.items() if standing is Standing.DEAD]
    dropped |= set(dead[: max(spare, 0)])
    sound = [store for store, standing in of.items() if standing is Standing.SOUND]
    while len(sound) > max(want, 1):
        surplus = _most_crowded(sound, view, keep)
        sound.remove(surplus)
        dropped.add(surplus)
    return tuple(store for store in replicas if store not in dropped)


def _most_crowded(stores: Sequence[StoreId], view: ClusterView, keep: StoreId | None) -> StoreId:
    facts = view.store_facts
    places = Counter(facts[store].place for store in stores)
    return min(
        (store for store in stores if store != keep),
        key=lambda store: (-places[facts[store].place], facts[store].free_bytes, store),
    )
