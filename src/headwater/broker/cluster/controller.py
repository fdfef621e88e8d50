"""The controller: one node at a time, elected, that carries out what `replication.controller` decides.

Every node that may be controller runs this. While it is not, it watches the one that is. While it is, it pings the
others, plans whenever something has changed, and at least every TICK_S, and writes each decision by compare-and-set, on
condition that it is still the controller. An outage of the metadata store stops it and harms nothing: it
goes on when the store is back. Whatever it was doing, the next controller finds in the keys.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from headwater.broker.cluster.controller_election import ControllerElection
from headwater.broker.cluster.controller_term import ControllerTerm
from headwater.broker.cluster.node_session import NodeSession
from headwater.broker.cluster.peer_pings import PeerPings, Ping, PingOptions
from headwater.broker.cluster.watch import ClusterChange, ClusterWatch
from headwater.logs.events import log_event
from headwater.metadata.store import MetaStore, Unavailable, Unknown
from headwater.model.clock import Clock
from headwater.model.cluster import Node, Reassignment
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId, PartitionId, StoreId
from headwater.model.replica import StoreError
from headwater.model.segments import SealedSegment
from headwater.replication.actions import Action, Copy, DropReplicas
from headwater.replication.cluster_view import ClusterView, SealedKey, Versioned
from headwater.replication.controller import ControllerRules
from headwater.replication.reassignment import ReassignmentProgress, progress

TICK_S: Final = 0.5
REPAIR_S: Final = 1.0
"""How often the sealed segments are gone through while they change; there may be very many."""
QUIET_REPAIR_S: Final = 5.0
"""And how often if none of them has changed."""
REST_PER_PLAN: Final = 3
"""A plan goes through all partitions. With thousands of them changing one after another, it is made again only when so
many times as long has passed as the last one took: planning costs a quarter of the node's time at most."""
SYNCED_WITHIN_S: Final = 5.0
"""How long a question waits for the segments to be read after an election."""


class CopiesSegments(Protocol):
    """What the controller needs of a `Copier`."""

    async def copy(self, action: Copy) -> None: ...

    async def is_complete(self, store: StoreId, sealed: SealedSegment) -> bool: ...


class Controller:
    def __init__(
        self,
        metadata: MetaStore,
        cluster: ClusterWatch,
        node: NodeSession,
        copier: CopiesSegments,
        ping: Ping,
        clock: Clock,
        *,
        rules: ControllerRules | None = None,
        pings: PingOptions | None = None,
    ) -> None:
        self._metadata = metadata
        self._cluster = cluster
        self._node = node
        self._copier = copier
        self._clock = clock
        self._rules = rules or ControllerRules()
        self._election = ControllerElection(metadata, node)
        self._pings = PeerPings(ping, self._of_interest, self._wake_up, clock, pings or PingOptions())
        self._term: ControllerTerm | None = None
        self._wake = asyncio.Event()
        self._planned_in_s = 0.0
        cluster.listen(self._changed)

    @property
    def is_leading(self) -> bool:
        """As far as this node knows."""
        return self._term is not None and self._term.mandate.may_hold

    @property
    def suspected(self) -> frozenset[NodeId]:
        return self._pings.suspected

    def configure(self, rules: ControllerRules) -> None:
        """Other rules from now on."""
        self._rules = rules
        if self._term is not None:
            self._term.planner.configure(rules, self._clock.monotonic())
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        await self._cluster.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pings.run())
            group.create_task(self._serve())

    async def elect_leaders(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, bool]:
        """Look for a better leader for each now; say which got one. Raises RequestError if this node is not the
        controller, Unavailable or Unknown if the metadata store does not answer."""
        term = self._present_term()
        moves = term.planner.elect(self._view(None), partitions, self._clock.monotonic())
        written = await term.writer.move_leaders(moves)
        return {partition: partition in written for partition in partitions}

    async def reassign(self, partition: PartitionId, nodes: tuple[NodeId, ...]) -> None:
        """Have the replicas of a partition on these nodes from now on; no nodes: anywhere. Raises as `elect_leaders`
        does, and RequestError if another request places the same partition at this moment."""
        term = self._present_term()
        known = self._cluster.reassignments.items.get(partition)
        wanted = Reassignment(nodes, is_complete=not nodes)
        if not await term.writer.place(partition, wanted, known.version if known is not None else 0):
            raise RequestError(ErrorCode.REASSIGNMENT_IN_PROGRESS, "Another request reassigned it at the same moment.")
        log_event("reassigned", partition=partition, nodes=",".join(map(str, nodes)) or "anywhere")
        term.is_stirred = True
        self._wake.set()

    async def reassignments(self) -> Mapping[PartitionId, ReassignmentProgress]:
        """Those that are under way. Raises RequestError if this node is not the controller, or cannot read what there
        is."""
        term = self._present_term()
        try:
            async with asyncio.timeout(SYNCED_WITHIN_S):
                await term.sealed.synced.wait()
        except TimeoutError:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "The metadata store does not answer.") from None
        view = self._view(None)
        moving = {partition for partition, item in view.reassignments.items() if not item.value.is_complete}
        sealed: dict[PartitionId, list[SealedSegment]] = {partition: [] for partition in moving}
        for (partition, _), item in term.sealed.items.items() if moving else ():
            if partition in moving:
                sealed[partition].append(item.value)
        found = {partition: progress(view, partition, segments) for partition, segments in sealed.items()}
        return {partition: state for partition, state in found.items() if state is not None}

    # In order

    def _present_term(self) -> ControllerTerm:
        if self._term is None:
            raise RequestError(ErrorCode.NOT_CONTROLLER, "This node is not the controller.")
        return self._term

    def _changed(self, change: ClusterChange) -> None:
        self._wake.set()

    def _wake_up(self) -> None:
        self._wake.set()

    def _of_interest(self) -> Mapping[NodeId, Node]:
        """The controller asks everybody; the others ask the controller."""
        me = self._node.node.node_id
        nodes = self._cluster.nodes
        if self._term is not None:
            return {node_id: node for node_id, node in nodes.items() if node_id != me}
        controller = self._cluster.controller
        if controller is None or controller.node == me or controller.node not in nodes:
            return {}
        return {controller.node: nodes[controller.node]}

    async def _serve(self) -> None:
        try:
            while True:
                self._wake.clear()
                try:
                    await self._turn()
                except (Unavailable, Unknown) as error:
                    log_event("controller_waits", logging.WARNING, error=f"{type(error).__name__}: {error}")
                    await asyncio.sleep(TICK_S)
                await asyncio.sleep(min(REST_PER_PLAN * self._planned_in_s, TICK_S))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._wake.wait()
        finally:
            await self._end_term()

    async def _turn(self) -> None:
        if self._term is not None and not await self._election.holds(self._term.mandate):
            log_event("controller_replaced", node=self._node.node.node_id, epoch=self._term.mandate.epoch)
            await self._end_term()
        if self._term is None:
            mandate = await self._election.stand(self._pings.suspected)
            if mandate is None:
                return
            self._term = ControllerTerm(mandate, self._metadata, self._cluster, self._rules)
        self._term.check()
        await self._carry_out(self._term, self._plan(self._term))
        await self._term.writer.note_absences(self._clock.now_ms())

    def _plan(self, term: ControllerTerm) -> list[Action]:
        now = self._clock.monotonic()
        due_at = term.repaired_at + (REPAIR_S if term.is_stirred else QUIET_REPAIR_S)
        is_time_for_repair = term.sealed.synced.is_set() and (term.has_progressed or now >= due_at)
        if is_time_for_repair:
            term.repaired_at, term.is_stirred, term.has_progressed = now, False, False
        actions = term.planner.plan(self._view(term.sealed.items if is_time_for_repair else None), now)
        self._planned_in_s = self._clock.monotonic() - now
        return actions

    def _view(self, sealed: Mapping[SealedKey, Versioned[SealedSegment]] | None) -> ClusterView:
        return self._cluster.view(sealed=sealed, suspected=self._pings.suspected)

    async def _carry_out(self, term: ControllerTerm, actions: Sequence[Action]) -> None:
        proven: list[Action] = []
        for action in actions:
            if isinstance(action, Copy):
                term.planner.copies.started(action, self._clock.monotonic())
                term.spawn(self._copy(term, action))
            elif not isinstance(action, DropReplicas) or await self._is_proven(action):
                proven.append(action)
        if await term.writer.write(proven):
            term.has_progressed = True
            self._wake.set()

    async def _is_proven(self, action: DropReplicas) -> bool:
        for witness in action.witnesses:
            if await self._copier.is_complete(witness, action.sealed):
                return True
        log_event("replicas_kept_for_lack_of_proof", logging.WARNING, segment=action.sealed.id)
        return False

    async def _copy(self, term: ControllerTerm, action: Copy) -> None:
        segment, store = action.sealed.id, action.target
        try:
            await self._copier.copy(action)
        except StoreError as error:
            log_event("segment_not_copied", logging.WARNING, segment=segment, store=store, error=error)
            term.planner.copies.failed(action, self._clock.monotonic())
        except BaseException:
            term.planner.copies.failed(action, self._clock.monotonic())
            raise
        else:
            log_event("segment_copied", segment=segment, store=store, size_bytes=action.sealed.size_bytes)
            term.planner.copies.finished(action)
        term.has_progressed = True
        self._wake.set()

    async def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        await term.close()
        with contextlib.suppress(Unavailable, Unknown):
            await self._election.resign(term.mandate)
