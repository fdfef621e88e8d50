"""Which sealed segments need a replica more or one less, and the next step of each copy that is under way.

A copy is three steps (docs/replication.md, 9): the target is announced, it pulls the segment, it becomes a replica.
Each step is decided from the key alone, so any controller can go on where another stopped. The segments with the fewest
copies come first; how many are copied at once and how fast is bounded. Those whose pace an operator throttles have a
number of their own: they may take hours, and what lost a replica must not wait for them.

No step takes away the last copy: a living replica goes only when as many others are alive as there should be, and one
that is dead only when others have taken its place.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.model.cluster import StoreState
from headwater.model.ids import StoreId
from headwater.model.segments import SealedSegment
from headwater.replication.actions import Action, AnnounceCopy, Copy, DropReplicas, FinishCopy, GiveUpCopy
from headwater.replication.cluster_view import ClusterView, SealedKey
from headwater.replication.copies import CopyLedger, CopyState, cost_bytes
from headwater.replication.placement import StoreInfo, choose
from headwater.replication.standing import FINE, Policies, Policy, Standing, without_surplus

MAX_DROPS = 100
"""In one plan. They are cheap, but each is a write."""
TRIED_PER_COPY = 16
"""Some segments may have no place to go to; they must not stand in the way of others."""


@dataclass(frozen=True, slots=True)
class RepairLimits:
    max_copies: int
    dead_store_s: float


@dataclass(frozen=True, slots=True)
class _Case:
    """One segment that needs something."""

    key: SealedKey
    sealed: SealedSegment
    version: int
    policy: Policy

    def replicas(self, *standings: Standing) -> list[StoreId]:
        of = self.policy.standings
        return [store for store in self.sealed.replicas if of.get(store, Standing.DEAD) in standings]

    @property
    def donors(self) -> tuple[StoreId, ...]:
        return (*self.replicas(Standing.SOUND), *self.replicas(Standing.LEAVING))


class Repair:
    """Remembers since when each store is away."""

    def __init__(self, limits: RepairLimits, ledger: CopyLedger) -> None:
        self.limits = limits
        self._ledger = ledger
        self._away_since: dict[StoreId, float] = {}

    def observe(self, view: ClusterView, now: float) -> None:
        infos = view.store_infos
        self._away_since = {
            store: self._away_since.get(store, now) for store, info in infos.items() if not info.is_alive
        }
        if view.sealed is not None:
            self._ledger.forget_old(view.sealed, now)

    def plan(self, view: ClusterView, now: float) -> list[Action]:
        assert view.sealed is not None, "repair is planned when the sealed segments are known"
        policies = Policies(view, {id_: self._standing(id_, it, now) for id_, it in view.store_infos.items()})
        under_way: list[Action] = []
        drops: list[Action] = []
        short: dict[tuple[bool, int], list[_Case]] = {}
        enough = self.limits.max_copies * TRIED_PER_COPY
        announced: Counter[bool] = Counter()
        for key, item in view.sealed.items():
            policy = policies.of(key[0])
            if policy is None:
                continue
            sealed = item.value
            verdict = policy.verdict(sealed.replicas)
            if not sealed.adding and verdict is FINE:
                continue
            is_slow = view.is_throttled(key[0])
            likes = short.setdefault((is_slow, verdict.living), [])
            if verdict.is_short and not sealed.adding and len(likes) >= enough:
                continue
            case = _Case(key, sealed, item.version, policy)
            if sealed.adding:
                announced[is_slow] += 1
                step = self._next_step(case, view)
                if step is not None:
                    under_way.append(step)
            elif verdict.is_short:
                likes.append(case)
            elif len(drops) < MAX_DROPS:
                drops.append(_drop(case, view))
        running = Counter(map(view.is_throttled, self._ledger.running))
        copies = [step for step in under_way if isinstance(step, Copy)]
        steps: list[Action] = [step for step in under_way if not isinstance(step, Copy)]
        new: list[Action] = []
        for is_slow in (False, True):
            slots = max(self.limits.max_copies - running[is_slow], 0)
            steps += [copy for copy in copies if view.is_throttled(copy.partition) is is_slow][:slots]
            by_urgency = [case for (slow, _), some in sorted(short.items()) if slow is is_slow for case in some]
            new += self._announce(by_urgency, announced[is_slow], new, view, now)
        return [*steps, *drops, *new]

    def _standing(self, store: StoreId, infos: StoreInfo, now: float) -> Standing:
        if infos.state is StoreState.LOST:
            return Standing.LOST
        if not infos.is_alive:
            is_short_absence = now - self._away_since.get(store, now) < self.limits.dead_store_s
            return Standing.RESTING if is_short_absence and infos.state is StoreState.ACTIVE else Standing.DEAD
        return Standing.SOUND if infos.state is StoreState.ACTIVE else Standing.LEAVING

    def _next_step(self, case: _Case, view: ClusterView) -> Action | None:
        partition, sealed, version = case.key[0], case.sealed, case.version
        target = sealed.adding[0]
        state = self._ledger.state(case.key, version, target)
        is_usable = case.policy.standings.get(target) is Standing.SOUND and target not in sealed.replicas
        if state is CopyState.DONE and is_usable:
            kept = without_surplus(
                (*sealed.replicas, target), case.policy.standings, case.policy.target_count, view, keep=target
            )
            return FinishCopy(partition, sealed, version, target, kept)
        if self._ledger.is_running(case.key, target):
            return None
        if state is CopyState.FAILED or not is_usable or not case.policy.is_short(sealed.replicas):
            return GiveUpCopy(partition, sealed, version)
        return Copy(partition, sealed, version, target, case.donors) if case.donors else None

    def _announce(
        self, short: Sequence[_Case], announced: int, planned: Sequence[Action], view: ClusterView, now: float
    ) -> list[AnnounceCopy]:
        free = self.limits.max_copies - announced
        planned_bytes = sum(cost_bytes(each.sealed) for each in planned if isinstance(each, AnnounceCopy))
        found: list[AnnounceCopy] = []
        for case in short[: self.limits.max_copies * TRIED_PER_COPY]:
            if free <= 0 or not self._ledger.has_budget(planned_bytes, now):
                break
            target = self._target(case, view, now)
            if target is not None:
                free -= 1
                planned_bytes += cost_bytes(case.sealed)
                found.append(AnnounceCopy(case.key[0], case.sealed, case.version, target))
        return found

    def _target(self, case: _Case, view: ClusterView, now: float) -> StoreId | None:
        stores: Sequence[StoreInfo] = list(view.store_infos.values())
        staying = case.replicas(Standing.SOUND, Standing.RESTING)
        targets = case.policy.target_nodes
        if targets is not None:
            empty = [node for node in targets if node not in view.nodes_of(staying)]
            stores = [it for it in stores if it.store_id in staying or it.node_id in empty]
        refused = self._ledger.refused_targets(case.sealed.id, view.store_infos, now)
        avoid = refused.union(case.sealed.replicas)
        preferred = view.preferred_nodes(case.key[0])
        return next(iter(choose(stores, 1, None, avoid, case.sealed.id, beside=staying, preferred=preferred)), None)


def _drop(case: _Case, view: ClusterView) -> DropReplicas:
    standings = case.policy.standings
    kept = without_surplus(case.sealed.replicas, standings, case.policy.target_count, view, keep=None)
    witnesses = tuple(store for store in kept if standings.get(store) is Standing.SOUND)
    return DropReplicas(case.key[0], case.sealed, case.version, kept, witnesses)
