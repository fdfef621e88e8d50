"""Any interleaving of clients, time and restarts, against what may be said of groups without knowing how they work."""

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.groups.effects import GroupEffects, JoinAnswer, SyncAnswer
from headwater.groups.event_records import decode, encode
from headwater.groups.events import Event
from headwater.groups.requests import CommitRequest, LeaveRequest, OffsetToCommit, SyncRequest
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.groups.topics import TopicTable
from headwater.model.errors import ErrorCode, RequestError
from tests.groups.driven_group import at, join_request
from tests.groups.driven_offsets import compacted

PARTITIONS = 3
CLIENTS = 4
PRODUCERS = 2
STATIC_CLIENTS = 2
SETTINGS = GroupSettings(initial_rebalance_delay_ms=500, offsets_retention_ms=10**12)


@dataclass
class Client:
    """What a consumer knows: its id, its generation, and which of its requests is under way."""

    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    joined: JoinAnswer | None = None
    waiting: object | None = None

    def lost(self) -> None:
        self.member_id, self.generation, self.joined, self.waiting = "", -1, None, None


clients = st.integers(0, CLIENTS - 1)
producers = st.integers(1, PRODUCERS)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = GroupShard(SETTINGS, TopicTable())
        self.clients = [Client(f"i{index}" if index < STATIC_CLIENTS else None) for index in range(CLIENTS)]
        self.log: list[Event] = []
        self.now_ms = 0
        self.requests: dict[object, Client] = {}
        self.tokens = 0
        self.owners: dict[tuple[int, int], str] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.pending: list[tuple[int, int, int]] = []
        """(producer, partition, offset) that no later plain commit has made pointless, in their order."""
        self.highest_generation = 0

    def token(self, client: Client) -> object:
        self.tokens += 1
        self.requests[self.tokens] = client
        return self.tokens

    def take(self, effects: GroupEffects) -> None:
        self.log += effects.events
        for reply in effects.replies:
            client = self.requests.pop(reply.to)
            if client.waiting != reply.to:
                continue  # The client gave this request up: its process was replaced or the broker restarted.
            client.waiting = None
            self.answered(client, reply.answer)

    def answered(self, client: Client, answer: Any) -> None:
        match answer:
            case JoinAnswer(ErrorCode.NONE):
                client.member_id, client.generation, client.joined = answer.member_id, answer.generation, answer
            case JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = answer.member_id
            case SyncAnswer(ErrorCode.NONE):
                for partition in answer.assignment:
                    owner = client.instance_id or client.member_id
                    key = (client.generation, partition)
                    assert self.owners.setdefault(key, owner) == owner, "one owner in one generation, ever"
            case JoinAnswer(error) | SyncAnswer(error) if error is not ErrorCode.REBALANCE_IN_PROGRESS:
                client.lost()

    def ask(self, client: Client, call: Any) -> None:
        token = client.waiting = self.token(client)
        try:
            self.take(call(token))
        except RequestError as refusal:
            del self.requests[token]
            client.waiting = None
            if refusal.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.lost()

    @rule(index=clients, session_ms=st.sampled_from([6_000, 12_000]), rebalance_ms=st.sampled_from([1_000, 9_000]))
    def join(self, index: int, session_ms: int, rebalance_ms: int) -> None:
        client = self.clients[index]
        request = join_request(
            client.member_id,
            instance_id=client.instance_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            needs_known_id=index % 2 == 0,
        )
        self.ask(client, lambda token: self.shard.join("g", request, f"u{token}", token, at(self.now_ms)))

    @rule(index=clients)
    def sync(self, index: int) -> None:
        client = self.clients[index]
        assignments: dict[str, bytes] = {}
        if client.joined is not None and client.joined.members and not client.joined.skip_assignment:
            ids = [member.member_id for member in client.joined.members]
            for number, member_id in enumerate(ids):
                assignments[member_id] = bytes(range(number, PARTITIONS, len(ids)))
        request = SyncRequest(client.member_id, client.instance_id, client.generation, None, None, assignments)
        self.ask(client, lambda token: self.shard.sync("g", request, token, at(self.now_ms)))

    @rule(index=clients)
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        try:
            self.shard.heartbeat("g", client.member_id, client.instance_id, client.generation, at(self.now_ms))
        except RequestError:
            return
        assert client.generation == self.generation(), "only members of the generation are heard"

    @rule(index=clients)
    def leave(self, index: int) -> None:
        client = self.clients[index]
        request = [LeaveRequest(client.member_id, client.instance_id)]
        self.take(self.shard.leave("g", request, self.token(client), at(self.now_ms)))
        client.lost()

    @rule(index=clients)
    def crash(self, index: int) -> None:
        """The client's process is gone, and a new one knows nothing of its id."""
        self.clients[index].lost()

    @rule(index=clients, partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 100))
    def commit(self, index: int, partition: int, offset: int) -> None:
        client = self.clients[index]
        offsets = (OffsetToCommit("orders", partition, offset, -1, ""),)
        request = CommitRequest(client.member_id, client.instance_id, client.generation, offsets)
        generation = self.generation()
        is_empty = self.shard.described("g").state.value in ("Empty", "Dead")
        try:
            self.take(self.shard.commit("g", request, self.token(client), at(self.now_ms)))
        except RequestError:
            return
        assert client.generation == generation or (is_empty and client.generation == -1)
        self.committed["orders", partition] = offset
        self.pending = [each for each in self.pending if each[1] != partition]

    @rule(index=clients, producer=producers, partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 100))
    def commit_in_transaction(self, index: int, producer: int, partition: int, offset: int) -> None:
        client = self.clients[index]
        offsets = (OffsetToCommit("orders", partition, offset, -1, ""),)
        request = CommitRequest(client.member_id, client.instance_id, client.generation, offsets)
        generation, is_empty = self.generation(), self.shard.described("g").state.value in ("Empty", "Dead")
        try:
            token = self.token(client)
            self.take(self.shard.commit_in_transaction("g", request, producer, 0, token, at(self.now_ms)))
        except RequestError:
            return
        is_nobody = client.generation == -1 and client.member_id == "" and client.instance_id is None
        assert client.generation == generation or (is_empty and client.generation == -1) or is_nobody
        self.pending = [each for each in self.pending if each[:2] != (producer, partition)]
        self.pending.append((producer, partition, offset))

    @rule(producer=producers, is_commit=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool) -> None:
        self.take(self.shard.end_transaction(producer, 0, is_commit, self.token(self.clients[0])))
        for each in [each for each in self.pending if each[0] == producer]:
            if is_commit:
                self.committed["orders", each[1]] = each[2]
                before = self.pending[: self.pending.index(each)]
                self.pending = [other for other in self.pending if other not in before or other[1] != each[1]]
            self.pending.remove(each)

    @rule(ms=st.sampled_from([100, 500, 3_000, 7_000]))
    def time_passes(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (next_ms := self.shard.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.take(self.shard.tick(at(self.now_ms)))
        self.now_ms = end_ms

    @rule(active=st.sets(clients, min_size=2), rounds=st.integers(1, 3))
    def consume(self, active: set[int], rounds: int) -> None:
        """Some clients do what consumers do all day, which random steps seldom add up to."""
        for _ in range(rounds):
            for index in sorted(active):
                client = self.clients[index]
                if client.waiting is None and not self.is_stable(client):
                    self.join(index, 12_000, 9_000)
                    if client.waiting is None and client.joined is None:
                        self.join(index, 12_000, 9_000)
            self.time_passes(3_000)
            for index in sorted(active):
                if self.clients[index].waiting is None:
                    self.sync(index)

    def is_stable(self, client: Client) -> bool:
        try:
            heard = self.shard.heartbeat("g", client.member_id, client.instance_id, client.generation, at(self.now_ms))
        except RequestError:
            return False
        return heard is ErrorCode.NONE

    @rule()
    def expire(self) -> None:
        self.take(self.shard.expire("g", at(self.now_ms)))
        if not self.shard.group_ids():
            # A group without members, offsets and record is forgotten, and its generations may be counted anew.
            self.owners, self.highest_generation = {}, 0
            for client in self.clients:
                client.lost()

    @precondition(lambda self: self.log)
    @rule()
    def restart(self) -> None:
        self.shard = self.replayed(self.log)
        self.shard.resume(at(self.now_ms))
        for client in self.clients:
            client.waiting = None
        self.requests.clear()

    def replayed(self, log: list[Event]) -> GroupShard:
        shard = GroupShard(SETTINGS, TopicTable())
        for event in log:
            read = decode(*encode(event))
            assert read is not None
            shard.apply(read)
        return shard

    def generation(self) -> int:
        return self.shard.described("g").generation

    @invariant()
    def a_replay_of_the_log_or_of_its_compacted_form_gives_the_durable_state(self) -> None:
        assert self.replayed(self.log).durable_state() == self.shard.durable_state()
        assert self.replayed(compacted(self.log)).durable_state() == self.shard.durable_state()

    @invariant()
    def stored_generations_only_grow(self) -> None:
        stored = self.shard.durable_state()[0]
        if "g" in stored:
            assert stored["g"].generation >= self.highest_generation
            self.highest_generation = stored["g"].generation
            assert self.generation() >= self.highest_generation

    @invariant()
    def the_last_accepted_commit_is_what_a_reader_gets(self) -> None:
        read = {(topic, partition): each.offset for topic, partition, each in self.shard.offsets("g")}
        assert read == self.committed

    @invariant()
    def what_no_end_of_a_transaction_has_decided_is_pending(self) -> None:
        pending = [each for waiting in self.shard.durable_state()[2].values() for each in waiting]
        found = [(each.producer_id, each.partition, each.committed.offset) for each in pending]
        assert sorted(found) == sorted(self.pending)

    @invariant()
    def a_deadline_is_set_while_anybody_waits(self) -> None:
        if any(client.waiting is not None for client in self.clients):
            assert self.shard.next_deadline_ms() is not None

    @invariant()
    def a_stable_group_has_the_members_that_are_stored(self) -> None:
        described = self.shard.described("g")
        stored = self.shard.durable_state()[0].get("g")
        if described.state.value in ("Stable", "Empty") and stored is not None:
            stored_ids = {member.member_id for member in stored.members}
            assert {member.member_id for member in described.members} == stored_ids

    @invariant()
    def a_stable_group_has_a_leader_among_its_members(self) -> None:
        described = self.shard.described("g")
        assert not described.members or described.leader in {member.member_id for member in described.members}


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
