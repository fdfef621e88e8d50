"""Any interleaving of commits, transactions, deletions and crashes, against a list of all commits that were ever made.

The list knows nothing of how the shard does it: what counts in a partition is the last commit in it that was plain or
whose transaction has committed. Three kinds of groups take part; a crash may cut the events of a decision anywhere, and
the log that is read then may be compacted."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.groups.events import Event, OffsetCommitted, PendingOffsetStored
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import at, refusal
from tests.groups.driven_offsets import SETTINGS, DrivenOffsets, commit_request, compacted, orders_topics

PARTITIONS = 2
PRODUCERS = 3
GROUPS = ("simple", "classic", "consumer")

GroupPartition: TypeAlias = tuple[str, int]
"""A group, and a partition of the only topic."""

groups = st.sampled_from(GROUPS)
partitions = st.integers(0, PARTITIONS - 1)
producers = st.integers(1, PRODUCERS)
offsets = st.integers(0, 1_000)
cuts = st.integers(0, 99)
"""How many in a hundred of a decision's events reached the log before a crash: never all of them."""


@dataclass(eq=False)
class Commit:
    offset: int
    producer: int | None = None
    """Whose transaction must commit before it counts."""


class AllCommits:
    """Of each partition of each group, in the order in which they were made."""

    def __init__(self) -> None:
        self.commits_of: dict[GroupPartition, list[Commit]] = {(g, p): [] for g in GROUPS for p in range(PARTITIONS)}

    def add(self, pair: GroupPartition, offset: int, producer: int | None = None) -> None:
        if producer is not None:
            self.commits_of[pair] = [each for each in self.commits_of[pair] if each.producer != producer]
        self.commits_of[pair].append(Commit(offset, producer))

    def end_transaction(self, producer: int, is_commit: bool) -> None:
        for pair, commits in self.commits_of.items():
            if is_commit:
                for each in commits:
                    each.producer = None if each.producer == producer else each.producer
            else:
                self.commits_of[pair] = [each for each in commits if each.producer != producer]

    def counts(self, pair: GroupPartition, ended: tuple[int, ...] = ()) -> int | None:
        """What counts, if the transactions of these producers have committed, too."""
        found = [each.offset for each in self.commits_of[pair] if each.producer is None or each.producer in ended]
        return found[-1] if found else None

    def waiting(self, pair: GroupPartition) -> list[Commit]:
        """Those that can still become what counts: everything behind it."""
        commits = self.commits_of[pair]
        plain = [index for index, each in enumerate(commits) if each.producer is None]
        return commits[plain[-1] + 1 if plain else 0 :]


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driven = DrivenOffsets(SETTINGS, orders_topics())
        self.members: dict[str, dict[str, Any]] = {
            "simple": {},
            "classic": {"member_id": self.driven.classic_member("classic"), "generation": 1},
            "consumer": {"member_id": "m", "generation": self.driven.consumer_member("consumer")},
        }
        self.all = AllCommits()
        self.epochs = dict.fromkeys(range(1, PRODUCERS + 1), 0)
        self.torn: dict[int, bool] = {}
        """Producers whose transaction was being ended when the broker crashed, and how it ended."""

    # Commits

    @rule(group=groups, partition=partitions, offset=offsets)
    def commit(self, group: str, partition: int, offset: int) -> None:
        done = self.driven.commit(("orders", partition, offset), group_id=group, **self.members[group])
        assert done == [ErrorCode.NONE]
        self.all.add((group, partition), offset)

    @rule(
        producer=producers, group=groups, where=st.sets(partitions, min_size=1), offset=offsets, is_named=st.booleans()
    )
    def pend(self, producer: int, group: str, where: set[int], offset: int, is_named: bool) -> None:
        if producer in self.torn:
            return  # Its coordinator would not say that it has a transaction.
        who = self.members[group] if is_named else {}
        done = self.driven.pend(
            producer,
            *(("orders", index, offset) for index in where),
            epoch=self.epochs[producer],
            group_id=group,
            **who,
        )
        assert set(done) == {ErrorCode.NONE}
        for index in where:
            self.all.add((group, index), offset, producer)

    @rule(producer=producers, group=groups, offset=offsets)
    def zombie_pends(self, producer: int, group: str, offset: int) -> None:
        """An older instance is refused at the latest when the newer one has something pending."""
        if any(each.producer_id == producer for waiting in self.pending().values() for each in waiting):
            older = self.epochs[producer] - 1
            refused = refusal(lambda: self.driven.pend(producer, ("orders", 0, offset), epoch=older, group_id=group))
            assert refused is ErrorCode.INVALID_PRODUCER_EPOCH

    # Ends

    @rule(producer=producers, is_commit=st.booleans(), is_bumped=st.booleans())
    def end_transaction(self, producer: int, is_commit: bool, is_bumped: bool) -> None:
        if producer in self.torn:
            return
        self.epochs[producer] += is_bumped
        self.driven.end_transaction(producer, is_commit, self.epochs[producer])
        self.all.end_transaction(producer, is_commit)

    @rule(what=st.sampled_from(["offset", "group", "topic"]), group=groups, partition=partitions)
    def delete(self, what: str, group: str, partition: int) -> None:
        """One rule for all of it, lest most of what the others do be deleted at once."""
        shard = self.driven.shard
        if what == "topic":
            self.driven.log += shard.forget_topic("orders").events
            self.all = AllCommits()
        elif self.exists("simple") and what == "group":
            self.driven.log += shard.delete_group("simple", "t").events
            self.all.commits_of |= {("simple", index): [] for index in range(PARTITIONS)}
        elif self.exists(group):
            effects = shard.delete_offsets(group, [("orders", partition)], "t")
            self.driven.log += effects.events
            if group == "simple":
                self.all.commits_of[group, partition] = []
            else:
                assert effects.events == [], "of a topic that the group reads"

    # Crashes

    @rule(is_compacted=st.booleans())
    def restart(self, is_compacted: bool) -> None:
        self.driven.restart(compacted(self.driven.log) if is_compacted else None)

    @rule(producer=producers, is_commit=st.booleans(), cut=cuts, is_compacted=st.booleans())
    def crash_while_settling(self, producer: int, is_commit: bool, cut: int, is_compacted: bool) -> None:
        if producer in self.torn:
            return
        effects = self.driven.shard.end_transaction(producer, self.epochs[producer], is_commit, "t")
        self.driven.log += torn(effects.events, cut)
        self.restart(is_compacted)
        self.torn[producer] = is_commit

    @precondition(lambda self: self.torn)
    @rule(producer=producers)
    def end_transaction_again(self, producer: int) -> None:
        if producer in self.torn:
            is_commit = self.torn.pop(producer)
            self.driven.end_transaction(producer, is_commit, self.epochs[producer])
            self.all.end_transaction(producer, is_commit)

    @rule(group=groups, where=st.sets(partitions, min_size=1), offset=offsets, cut=cuts, is_compacted=st.booleans())
    def crash_while_committing(self, group: str, where: set[int], offset: int, cut: int, is_compacted: bool) -> None:
        """Nobody was told of the commit. Where it is found nevertheless, it stands behind what it has removed."""
        request = commit_request(*(("orders", index, offset) for index in where), **self.members[group])
        events = torn(self.driven.shard.commit(group, request, "t", at(0)).events, cut)
        self.driven.log += events
        self.restart(is_compacted)
        for pair in ((event.group_id, event.partition) for event in events if isinstance(event, OffsetCommitted)):
            left = {each.producer_id for each in self.pending().get((pair[0], ("orders", pair[1])), ())}
            commits, waiting = self.all.commits_of[pair], self.all.waiting(pair)
            behind = [each for each in waiting if each.producer in left]
            commits.insert(commits.index(behind[0]) if behind else len(commits), Commit(offset))

    @rule(producer=producers, group=groups, where=st.sets(partitions, min_size=1), offset=offsets, cut=cuts)
    def crash_while_pending(self, producer: int, group: str, where: set[int], offset: int, cut: int) -> None:
        if producer in self.torn:
            return
        request = commit_request(*(("orders", index, offset) for index in where), **self.members[group])
        shard, epoch = self.driven.shard, self.epochs[producer]
        events = torn(shard.commit_in_transaction(group, request, producer, epoch, "t", at(0)).events, cut)
        self.driven.log += events
        self.restart(False)
        for event in events:
            assert isinstance(event, PendingOffsetStored)
            self.all.add((group, event.partition), offset, producer)

    # What must hold

    def exists(self, group: str) -> bool:
        return group in self.driven.shard.group_ids()

    def pending(self) -> dict[Any, tuple[PendingOffsetStored, ...]]:
        return self.driven.shard.durable_state()[2]

    @invariant()
    def the_last_commit_that_was_not_refused_counts(self) -> None:
        """While a crash has left the end of a transaction half done, its partitions may each be before or behind it."""
        half_done = [producer for producer, is_commit in self.torn.items() if is_commit]
        for pair in self.all.commits_of:
            group, partition = pair
            possible = {
                self.all.counts(pair, ended)
                for count in range(len(half_done) + 1)
                for ended in combinations(half_done, count)
            }
            assert self.driven.offset("orders", partition, group) in possible

    @invariant()
    def an_offset_is_pending_while_an_end_may_change_it(self) -> None:
        for pair in self.all.commits_of:
            group, partition = pair
            waiting = {each.producer for each in self.all.waiting(pair)}
            if not waiting & self.torn.keys():
                assert self.driven.is_pending("orders", partition, group) == bool(waiting)
                found = self.pending().get((group, ("orders", partition)), ())
                assert [each.producer_id for each in found] == [each.producer for each in self.all.waiting(pair)]

    @invariant()
    def a_replay_of_the_log_or_of_its_compacted_form_gives_the_durable_state(self) -> None:
        log: list[Event] = self.driven.log
        durable = self.driven.shard.durable_state()
        assert self.driven.replayed(log).durable_state() == durable
        assert self.driven.replayed(compacted(log)).durable_state() == durable

    def teardown(self) -> None:
        """When all transactions have ended, nothing is pending, and every end was the right one."""
        for producer in self.epochs:
            self.end_transaction_again(producer)
            self.end_transaction(producer, True, True)
        assert self.pending() == {}
        for group, partition in self.all.commits_of:
            assert self.driven.offset("orders", partition, group) == self.all.counts((group, partition))


def torn(events: list[Event], cut: int) -> list[Event]:
    return events[: len(events) * cut // 100]


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, report_multiple_bugs=False)
