"""The state of all share partitions that one partition of `__share_group_state` remembers: what may be claimed and
written, and the records that say so. `state_keeper` logs them.

A leader claims the state of a share partition first, with its leader epoch: from then on a leader of an older epoch can
neither claim nor write. Each claim has a ticket, which must come with every write, so that what was sent under an
earlier claim and comes late is refused, too. Tickets are not stored: when the log moves to another node, every leader
claims again.

Changes since a snapshot have slots of their own, counted from 0, so none of them is lost before the next snapshot
comes; then their slots are used again, and compaction drops what the snapshot made superfluous. A change that comes
before any snapshot of its share partition is a leftover of that, and is skipped.

Keys of older versions are written for as long as a node of the cluster knows no others. Then the next claim of a share
partition writes what is known of it as one snapshot, and deletes it under its old keys. Records take effect in their
order, so a state that is partly under the one and partly under the other is whole.
"""

import struct
from collections.abc import Callable, Iterator, Mapping

from headwater.broker.nodes.node_messages import Claimed, ShareKey, StateEntry, StateWrite
from headwater.broker.queues.state_keys import MAX_CHANGES, Kind, StateKey
from headwater.broker.queues.state_keys import decode as decode_key
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import FIRST_OFFSET, NO_LEADER_EPOCH, LeaderEpoch, PartitionId, TopicId
from headwater.queues.event_bytes import decode as decode_event
from headwater.queues.event_bytes import encode as encode_event
from headwater.queues.share_state import ShareState
from headwater.records.record import Record

_EPOCH = struct.Struct(">i")


class KeyVersion:
    """Which keys are written: of older versions until every node of the cluster reads the newer ones. Once a newer key
    was written, newer keys stay: the nodes that must read them were there then."""

    def __init__(self, all_read_own_keys: Callable[[], bool]) -> None:
        self._all_read_own_keys = all_read_own_keys
        self._has_own_keys = False

    @property
    def is_old(self) -> bool:
        self._has_own_keys = self._has_own_keys or self._all_read_own_keys()
        return not self._has_own_keys

    def replayed(self, key: StateKey) -> None:
        self._has_own_keys = self._has_own_keys or not key.is_old


class _KeptShare:
    """What is known of one share partition."""

    __slots__ = ("changes", "epoch", "old_slots", "slots", "snapshot", "snapshot_is_old", "ticket")

    def __init__(self) -> None:
        self.epoch = NO_LEADER_EPOCH
        self.ticket = 0
        self.snapshot = b""
        self.changes: list[bytes] = []
        self.slots: int | None = None
        """How many slots were ever used; None if there is no key at all."""
        self.old_slots: int | None = None
        """The same of keys of older versions."""
        self.snapshot_is_old = False

    @property
    def claimed(self) -> Claimed:
        return Claimed(self.ticket, self.snapshot, tuple(self.changes))

    def used(self, key: StateKey) -> None:
        """Something is written under the key."""
        if key.is_old:
            self.old_slots = max(self.old_slots or 0, key.slot + 1)
        else:
            self.slots = max(self.slots or 0, key.slot + 1)

    def whole(self) -> bytes | None:
        """A snapshot that includes the changes; None if the snapshot or a change cannot be read."""
        state = ShareState(FIRST_OFFSET, is_key_ordered=False)
        try:
            for value in (self.snapshot, *self.changes) if self.snapshot else ():
                state.apply(decode_event(value))
        except ValueError:
            return None
        return encode_event(state.snapshot()) if self.snapshot else b""


class KeptShares:
    def __init__(self, tickets: Iterator[int], keys: KeyVersion) -> None:
        """Both outlive a replay: no ticket is given twice."""
        self._tickets = tickets
        self._keys = keys
        self._shares: dict[ShareKey, _KeptShare] = {}

    def __len__(self) -> int:
        return len(self._shares)

    def topics(self) -> set[TopicId]:
        return {key.partition.topic_id for key in self._shares}

    # Decisions: applied at once, and returned as records to be logged. They raise RequestError.

    def claim(self, key: ShareKey, epoch: LeaderEpoch) -> tuple[list[Record], Claimed]:
        kept = self._get(key)
        if epoch < kept.epoch:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, f"A leader in epoch {kept.epoch} has claimed the state.")
        records = self._claim(key, kept, epoch)
        return records, kept.claimed

    def claim_all(
        self, leaders: Mapping[PartitionId, LeaderEpoch]
    ) -> tuple[list[Record], list[tuple[ShareKey, Claimed]]]:
        records: list[Record] = []
        states = []
        for key, kept in self._shares.items():
            epoch = leaders.get(key.partition, NO_LEADER_EPOCH)
            if kept.snapshot and epoch >= kept.epoch and epoch != NO_LEADER_EPOCH:
                records += self._claim(key, kept, epoch)
                states.append((key, kept.claimed))
        return records, states

    def write(self, write: StateWrite) -> list[Record]:
        kept = self._check_ticket(write.key, write.ticket)
        entries = write.entries
        starts_over = bool(entries) and entries[0].is_snapshot
        if not starts_over and (write.position != len(kept.changes) or not kept.snapshot):
            raise RequestError(ErrorCode.FENCED_STATE_EPOCH, "An earlier change of the state is missing.")
        changes = len(kept.changes)
        for entry in entries:
            changes = 0 if entry.is_snapshot else changes + 1
            if changes > MAX_CHANGES:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"More than {MAX_CHANGES} changes without a snapshot.")
        return [self._enter(write.key, kept, entry) for entry in entries]

    def forget(self, key: ShareKey, ticket: int) -> list[Record]:
        self._check_ticket(key, ticket)
        return list(self._forget(key))

    def forget_topic(self, topic_id: TopicId) -> list[Record]:
        keys = [key for key in self._shares if key.partition.topic_id == topic_id]
        return [record for key in keys for record in self._forget(key)]

    def _get(self, key: ShareKey) -> _KeptShare:
        kept = self._shares.get(key)
        if kept is None:
            kept = self._shares[key] = _KeptShare()
        return kept

    def _check_ticket(self, key: ShareKey, ticket: int) -> _KeptShare:
        kept = self._shares.get(key)
        if kept is None or kept.ticket != ticket:
            raise RequestError(ErrorCode.FENCED_STATE_EPOCH, "The state was claimed anew.")
        return kept

    def _claim(self, key: ShareKey, kept: _KeptShare, epoch: LeaderEpoch) -> list[Record]:
        kept.ticket = next(self._tickets)
        is_new, kept.epoch = kept.epoch != epoch, epoch
        if kept.old_slots is not None and not self._keys.is_old and (whole := kept.whole()) is not None:
            return list(self._move(key, kept, whole))
        return [self._claim_record(key, kept)] if is_new else []

    def _move(self, key: ShareKey, kept: _KeptShare, whole: bytes) -> Iterator[Record]:
        """All that is known, under the newer keys, and only then the old ones are deleted: the write may be cut off
        behind any of them."""
        yield self._claim_record(key, kept)
        if whole:
            yield self._enter(key, kept, StateEntry(True, whole))
        yield from _deletions(key, kept.old_slots, is_old=True)
        kept.old_slots = None

    def _claim_record(self, key: ShareKey, kept: _KeptShare) -> Record:
        name = StateKey(Kind.CLAIM, key, is_old=self._keys.is_old)
        kept.used(name)
        return Record(name.encode(), _EPOCH.pack(kept.epoch))

    def _enter(self, key: ShareKey, kept: _KeptShare, entry: StateEntry) -> Record:
        """The record of one event, in the slot that is next for its share partition."""
        is_old = self._keys.is_old
        if entry.is_snapshot:
            name = StateKey(Kind.SNAPSHOT, key, is_old=is_old)
            kept.snapshot, kept.changes, kept.snapshot_is_old = entry.value, [], is_old
        else:
            name = StateKey(Kind.CHANGE, key, len(kept.changes), is_old)
            kept.changes.append(entry.value)
        kept.used(name)
        return Record(name.encode(), entry.value)

    def _forget(self, key: ShareKey) -> Iterator[Record]:
        kept = self._shares.pop(key)
        yield from _deletions(key, kept.slots, is_old=False)
        yield from _deletions(key, kept.old_slots, is_old=True)

    # Reading

    def apply(self, record: Record) -> None:
        """Take over a record of the log. Raises ValueError."""
        name = decode_key(record.key or b"")
        self._keys.replayed(name)
        if record.value is None:
            if name.kind is Kind.SNAPSHOT:
                self._apply_deletion(name)
            return
        kept = self._get(name.share)
        kept.used(name)
        if name.kind is Kind.CLAIM:
            if len(record.value) != _EPOCH.size:
                raise ValueError(f"a claim of {len(record.value)} bytes")
            kept.epoch = _EPOCH.unpack(record.value)[0]
        elif name.kind is Kind.SNAPSHOT:
            kept.snapshot, kept.changes, kept.snapshot_is_old = record.value, [], name.is_old
        elif kept.snapshot:
            kept.changes.append(record.value)

    def _apply_deletion(self, snapshot: StateKey) -> None:
        """Of the group's state, or of what older versions wrote of it and is under newer keys now."""
        kept = self._shares.get(snapshot.share)
        if kept is None:
            return
        if snapshot.is_old and not kept.snapshot_is_old and kept.slots is not None:
            kept.old_slots = None
        elif snapshot.is_old or not kept.snapshot_is_old:  # else the old key's deletion follows
            del self._shares[snapshot.share]


def _deletions(key: ShareKey, slots: int | None, *, is_old: bool) -> Iterator[Record]:
    if slots is None:
        return
    yield Record(StateKey(Kind.SNAPSHOT, key, is_old=is_old).encode(), None)
    for slot in range(slots):
        yield Record(StateKey(Kind.CHANGE, key, slot, is_old).encode(), None)
    yield Record(StateKey(Kind.CLAIM, key, is_old=is_old).encode(), None)
