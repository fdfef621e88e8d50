"""Any interleaving of members of both protocols, topics, time and restarts, against what must hold however it is done:
nobody reads a partition that somebody else reads, epochs only grow, a replay is the state, and peace brings balance."""

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.groups.events import GroupStored, PendingOffsetStored
from headwater.groups.settings import GroupSettings
from headwater.model.errors import ErrorCode, RequestError
from tests.groups.classic_members import Classic
from tests.groups.driven_consumers import GROUP, Consumer, DrivenConsumers, topic_id
from tests.groups.driven_offsets import commit_request, compacted

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, consumer_session_timeout_ms=12_000)
CONSUMERS = 4
CLASSICS = 2
MAX_PARTITIONS = 7

consumers = st.integers(0, CONSUMERS - 1)
classics = st.integers(0, CLASSICS - 1)


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = DrivenConsumers(SETTINGS, orders=3)
        self.partitions = 3
        # Of these, 0 and 1 are static, and 3 reads by a pattern.
        self.consumers = [Consumer(f"m{number}", f"i{number}" if number < 2 else None) for number in range(CONSUMERS)]
        self.consumers[3].topics, self.consumers[3].regex = None, "ord.*"
        self.classics = [Classic(self.group, is_cooperative=True) for _ in range(CLASSICS)]
        self.is_in = [False] * CONSUMERS
        self.epoch = 0
        self.renamed = 0

    # Members of the new protocol

    @rule(index=consumers)
    def join(self, index: int) -> None:
        consumer = self.consumers[index]
        try:
            self.group.join(consumer)
        except RequestError as refusal:
            assert refusal.code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        self.is_in[index] = True

    @precondition(lambda self: any(self.is_in))
    @rule(index=consumers, says_owned=st.booleans(), is_obedient=st.booleans())
    def heartbeat(self, index: int, says_owned: bool, is_obedient: bool) -> None:
        consumer = self.consumers[index]
        if not self.is_in[index]:
            return
        if is_obedient:
            self.group.apply_told(consumer)
        try:
            self.group.heartbeat(consumer, says_owned)
        except RequestError:
            self.lost(index)

    @rule(index=consumers)
    def heartbeat_while_taking(self, index: int) -> None:
        """What comes next finds its application still at it."""
        if self.is_in[index]:
            self.group.begin_to_take(self.consumers[index])
            self.heartbeat(index, True, False)

    @rule(index=consumers)
    def take(self, index: int) -> None:
        consumer = self.consumers[index]
        if consumer.taking is not None:
            consumer.owned, consumer.taking = consumer.taking, None

    @rule(index=consumers)
    def heartbeat_whose_answer_is_lost(self, index: int) -> None:
        consumer = self.consumers[index]
        if not self.is_in[index]:
            return
        self.group.apply_told(consumer)
        with contextlib.suppress(RequestError):
            self.group.beat(consumer.member_id, consumer.epoch, instance_id=consumer.instance_id, owned=consumer.owned)

    @rule(index=consumers, for_a_while=st.booleans())
    def leave(self, index: int, for_a_while: bool) -> None:
        consumer = self.consumers[index]
        if not self.is_in[index]:
            return
        with contextlib.suppress(RequestError):
            self.group.leave(consumer, -2 if for_a_while and consumer.instance_id else -1)
        self.lost(index)

    @rule(index=consumers)
    def crash(self, index: int) -> None:
        """The process is gone; the next one has another member id."""
        self.renamed += 1
        self.lost(index)
        self.consumers[index].member_id = f"n{self.renamed}"

    @rule(index=consumers, partition=st.integers(0, 2), is_behind=st.booleans())
    def commit_in_transaction(self, index: int, partition: int, is_behind: bool) -> None:
        """The member's epoch is its right to commit, or nobody is in the group at all."""
        consumer = self.consumers[index]
        if not self.is_in[index]:
            return
        epoch = consumer.epoch - is_behind
        request = commit_request(
            ("orders", partition, 1), member_id=consumer.member_id, instance_id=consumer.instance_id, generation=epoch
        )
        shard, now = self.group.shard, self.group.now
        try:
            self.group.asked(lambda to: shard.commit_in_transaction(GROUP, request, index, 0, to, now))
        except RequestError:
            return
        members = {member.member_id: member.epoch for member in self.group.described.members}
        assert members[consumer.member_id] == epoch

    @rule(index=consumers, is_commit=st.booleans())
    def end_transaction(self, index: int, is_commit: bool) -> None:
        self.group.asked(lambda to: self.group.shard.end_transaction(index, 0, is_commit, to))
        assert all(each.producer_id != index for each in self.pending())

    def pending(self) -> list[PendingOffsetStored]:
        return [each for waiting in self.group.shard.durable_state()[2].values() for each in waiting]

    # Members of the classic protocol

    @rule(index=classics)
    def classic_joins(self, index: int) -> None:
        """And syncs. One that would have to wait for others gives up, and its process is gone."""
        classic = self.classics[index]
        try:
            if classic.join() is None or self.sync(classic) is not ErrorCode.NONE:
                self.lost_classic(index)
        except (RequestError, AssertionError):
            self.lost_classic(index)

    def sync(self, classic: Classic) -> ErrorCode:
        """A leader of a classic group gives all to itself: the others are then without, which is legal."""
        joined = self.group.answers[max(to for to in self.group.answers if isinstance(to, int))]
        if getattr(joined, "leader", "") == classic.member_id:
            listed = b"".join(index.to_bytes(4, "big") for index in range(self.partitions))
            head = b"\x00\x00\x00\x00\x00\x01\x00\x06orders" + self.partitions.to_bytes(4, "big")
            return classic.sync({classic.member_id: head + listed + b"\xff\xff\xff\xff"})
        return classic.sync()

    @rule(index=classics)
    def classic_heartbeats(self, index: int) -> None:
        classic = self.classics[index]
        if classic.generation < 0:
            return
        try:
            classic.heartbeat()
        except RequestError:
            self.lost_classic(index)

    @rule(index=classics)
    def classic_crashes(self, index: int) -> None:
        self.lost_classic(index)

    # The world

    @rule(ms=st.sampled_from([500, 4_000, 7_000]))
    def time_passes(self, ms: int) -> None:
        """Whoever is removed meanwhile counts as gone: a client knows from the clock that its session is over."""
        self.group.pass_ms(ms)
        for index, consumer in enumerate(self.consumers):
            if self.is_in[index] and not self.is_known(consumer.member_id):
                self.lost(index)
        for index, classic in enumerate(self.classics):
            if not self.is_known(classic.member_id):
                self.lost_classic(index)

    @rule()
    def grow(self) -> None:
        if self.partitions < MAX_PARTITIONS:
            self.partitions += 1
            self.group.put_topic("orders", self.partitions)

    @rule()
    def restart(self) -> None:
        self.group.restart()
        for index, classic in enumerate(self.classics):
            if not self.is_known(classic.member_id):
                self.lost_classic(index)

    @precondition(lambda self: self.is_consumer_group() and any(self.is_in))
    @rule()
    def peace(self) -> None:
        """Everybody does as it is told for a while."""
        for _ in range(8):
            for index in range(CLASSICS):
                classic = self.classics[index]
                try:
                    if classic.generation >= 0:
                        classic.live()
                except RequestError:
                    self.lost_classic(index)
            for index, is_in in enumerate(self.is_in):
                if is_in:
                    self.heartbeat(index, True, True)
                    self.group.apply_told(self.consumers[index])
            self.partitions_have_one_reader()
        if self.is_consumer_group() and len(self.group.described.members) == self.alive():
            assert self.group.state == "Stable"
            shares = [len(consumer.indexes()) for index, consumer in enumerate(self.consumers) if self.is_in[index]]
            shares += [len(classic.owned) for classic in self.classics if classic.generation >= 0]
            assert sum(shares) == self.partitions and max(shares) - min(shares) <= 1

    # What is known

    def lost(self, index: int) -> None:
        consumer = self.consumers[index]
        consumer.epoch = 0
        consumer.forget()
        self.is_in[index] = False

    def lost_classic(self, index: int) -> None:
        self.classics[index] = Classic(self.group, is_cooperative=True)

    def is_consumer_group(self) -> bool:
        return any(each.kind == "consumer" for each in self.group.shard.listed())

    def is_known(self, member_id: str) -> bool:
        if self.is_consumer_group():
            return any(member.member_id == member_id for member in self.group.described.members)
        return any(member.member_id == member_id for member in self.group.shard.described(GROUP).members)

    def alive(self) -> int:
        return sum(self.is_in) + sum(classic.generation >= 0 for classic in self.classics)

    @invariant()
    def partitions_have_one_reader(self) -> None:
        if not self.is_consumer_group():
            return  # There the leader assigns, and the members rejoin together.
        readers = [consumer.indexes() for consumer in self.consumers]
        readers += [classic.owned for classic in self.classics]
        together = [index for indexes in readers for index in indexes]
        assert len(together) == len(set(together)), readers

    @invariant()
    def nothing_is_assigned_twice(self) -> None:
        if self.is_consumer_group():
            given = [
                index for member in self.group.described.members for each in member.assigned for index in each.indexes
            ]
            assert len(given) == len(set(given))
            for member in self.group.described.members:
                assert member.epoch <= self.group.described.epoch
                assert all(each.topic_id == topic_id("orders") for each in member.assigned)

    @invariant()
    def epochs_only_grow(self) -> None:
        """Of a classic group, what is stored: a generation that was never assigned is forgotten by a restart."""
        stored = self.group.shard.durable_state()[0].get(GROUP)
        if stored is not None:
            epoch = stored.generation if isinstance(stored, GroupStored) else self.group.described.epoch
            assert epoch >= self.epoch
            self.epoch = epoch

    @invariant()
    def a_replay_of_the_log_or_of_its_compacted_form_gives_the_durable_state(self) -> None:
        assert self.group.replayed(self.group.log).durable_state() == self.group.shard.durable_state()
        assert self.group.replayed(compacted(self.group.log)).durable_state() == self.group.shard.durable_state()


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, report_multiple_bugs=False
)
