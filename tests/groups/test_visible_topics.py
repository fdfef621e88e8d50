"""A pattern stands for the topics that its own member may see: now, when rights or topics change, after a restart."""

from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import pytest

from headwater.groups.settings import GroupSettings
from headwater.groups.visible_topics import TopicRights
from tests.groups.driven_consumers import Consumer, DrivenConsumers, topic_id
from tests.support.effort import amount

HOLDER = object()
_versions = count(1)


def seeing(*names: str, holder: object = HOLDER) -> TopicRights:
    """Rights of another version than any before."""
    return TopicRights(holder, next(_versions), frozenset(names).__contains__)


def restricted(**topics: int) -> DrivenConsumers:
    return DrivenConsumers(GroupSettings(initial_rebalance_delay_ms=0, restricts_patterns=True), **topics)


def one(group: DrivenConsumers, *names: str, **fields: Any) -> Consumer:
    (member,) = group.joined(1, topics=None, regex="or.*", rights=seeing(*names), **fields)
    return member


def topics_of(member: Consumer) -> set[str]:
    names = ("orders", "oranges", "origins", "bills")
    return {name for name in names if member.indexes(name)}


def test_a_member_reads_what_its_pattern_matches_and_it_may_see() -> None:
    group = restricted(orders=2, oranges=2, bills=2)
    member = one(group, "orders", "bills")
    assert topics_of(member) == {"orders"}
    (described,) = group.described.members
    assert [each.topic for each in described.target] == ["orders"], "nor is it to have any other"


def test_without_rights_a_pattern_stands_for_nothing() -> None:
    group = restricted(orders=1)
    (member,) = group.joined(1, topics=None, regex="or.*")
    assert member.owned == {}


def test_a_topic_that_a_member_names_is_not_a_matter_of_its_pattern() -> None:
    group = restricted(orders=1, oranges=1, bills=1)
    (member,) = group.joined(1, topics=("bills",), regex="or.*", rights=seeing("orders"))
    assert topics_of(member) == {"orders", "bills"}


def test_members_with_one_pattern_and_other_rights_read_other_topics() -> None:
    group = restricted(orders=4, oranges=4)
    poor = Consumer("poor", topics=None, regex="or.*", rights=seeing("orders", holder="poor"))
    rich = Consumer("rich", topics=None, regex="or.*", rights=seeing("orders", "oranges", holder="rich"))
    for member in (poor, rich):
        group.join(member)
    group.converge(poor, rich)
    assert topics_of(poor) == {"orders"}
    assert rich.indexes("oranges") == {0, 1, 2, 3}, "no partition waits for a member that may not see it"
    assert poor.indexes("orders") | rich.indexes("orders") == {0, 1, 2, 3}


def test_what_is_granted_and_what_is_taken_away_is_followed_at_the_next_heartbeat() -> None:
    group = restricted(orders=1, oranges=1)
    member = one(group, "orders")
    member.rights = seeing("orders", "oranges")
    group.converge(member)
    assert topics_of(member) == {"orders", "oranges"}
    member.rights = seeing("oranges")
    answer = group.heartbeat(member, says_owned=False)
    assert answer.assigned is not None and topic_id("orders") not in answer.assigned
    group.converge(member)
    assert topics_of(member) == {"oranges"}


def test_rights_that_change_nothing_begin_no_epoch() -> None:
    group = restricted(orders=1)
    member = one(group, "orders")
    epoch, logged = member.epoch, len(group.log)
    member.rights = seeing("orders", "oranges")
    group.converge(member)
    assert (member.epoch, len(group.log)) == (epoch, logged)


def test_a_topic_that_comes_later_is_read_by_those_who_may_see_it_after_one_epoch() -> None:
    group = restricted(orders=3)
    rights = seeing("orders", "oranges")
    members = group.joined(3, topics=None, regex="or.*", rights=rights)
    epoch = group.described.epoch
    group.put_topic("oranges", 3)
    group.put_topic("origins", 3)
    group.converge(*members)
    assert set().union(*map(topics_of, members)) == {"orders", "oranges"}
    assert group.described.epoch == epoch + 1
    group.topics.remove("oranges")
    group.converge(*members)
    assert group.described.epoch == epoch + 2


def test_a_hidden_topic_that_comes_or_goes_is_not_noticed() -> None:
    group = restricted(orders=1)
    member = one(group, "orders")
    epoch = member.epoch
    group.put_topic("oranges", 1)
    group.converge(member)
    group.topics.remove("oranges")
    group.converge(member)
    assert member.epoch == epoch


def test_more_changes_of_topics_than_are_remembered_are_looked_at_again() -> None:
    group = restricted(orders=1)
    member = one(group, "orders", "origins")
    for number in range(1_100):
        group.put_topic(f"other-{number}", 1)
    group.put_topic("oranges", 1)
    group.put_topic("origins", 1)
    group.converge(member)
    assert topics_of(member) == {"orders", "origins"}


def test_members_go_on_after_a_restart_without_an_epoch() -> None:
    group = restricted(orders=1)
    rights = seeing("orders", "oranges")
    members = group.joined(3, topics=None, regex="or.*", rights=rights)
    epoch = group.described.epoch
    group.restart()
    group.converge(*members)
    assert group.described.epoch == epoch, "also of the two that have nothing to read"
    assert sorted(len(member.owned) for member in members) == [0, 0, 1]


def test_rights_that_are_lost_while_the_coordinator_moves_are_lost() -> None:
    group = restricted(orders=2, oranges=2)
    members = group.joined(2, topics=None, regex="or.*", rights=seeing("orders", "oranges"))
    group.restart()
    first, second = members
    first.rights = second.rights = seeing("orders")
    answer = group.heartbeat(first)
    assert answer.assigned is not None and topic_id("oranges") not in answer.assigned
    group.converge(*members)
    assert topics_of(first) | topics_of(second) == {"orders"}


def test_rights_that_are_gained_while_the_coordinator_moves_are_used() -> None:
    group = restricted(orders=1, oranges=1)
    member = one(group, "orders")
    group.restart()
    member.rights = seeing("orders", "oranges")
    group.converge(member)
    assert topics_of(member) == {"orders", "oranges"}


def test_the_successor_of_a_static_member_sees_by_its_own_rights() -> None:
    group = restricted(orders=1, oranges=1)
    first = Consumer("a", "i", topics=None, regex="or.*", rights=seeing("orders", "oranges"))
    group.join(first)
    group.converge(first)
    epoch = group.described.epoch
    group.leave(first, epoch=-2)
    same = Consumer("b", "i", topics=None, regex="or.*", rights=seeing("orders", "oranges"))
    group.join(same)
    group.converge(same)
    assert topics_of(same) == {"orders", "oranges"} and group.described.epoch == epoch
    group.leave(same, epoch=-2)
    poorer = Consumer("c", "i", topics=None, regex="or.*", rights=seeing("orders"))
    group.join(poorer)
    assert poorer.told is not None and topic_id("oranges") not in poorer.told
    group.converge(poorer)
    assert topics_of(poorer) == {"orders"}


def test_a_pattern_that_is_given_up_leaves_what_is_named() -> None:
    group = restricted(orders=1, bills=1)
    (member,) = group.joined(1, topics=("bills",), regex="or.*", rights=seeing("orders"))
    group.heartbeat(member, topic_regex="")
    group.converge(member)
    assert topics_of(member) == {"bills"}
    group.heartbeat(member, topic_regex="or.*")
    group.converge(member)
    assert topics_of(member) == {"bills", "orders"}


class Crowd:
    """Members with one pattern whose rights change, and topics that come, grow and go, while the coordinator moves."""

    NAMES = ("orders", "oranges", "origins")

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.group = restricted(orders=2)
        self.topics = {"orders": (2, 0)}
        """Partitions and incarnation."""
        self.incarnations = count(1)
        self.sees: dict[str, frozenset[str]] = {}
        self.members = [Consumer(f"m{number}", topics=None, regex="or.*") for number in range(3)]
        for member in self.members:
            self.regrant(member)
            self.group.join(member)

    def step(self) -> None:
        member = self.random.choice(self.members)
        match self.random.randrange(6):
            case 0:
                self.regrant(member)
            case 1:
                self.change(self.random.choice(self.NAMES))
            case 2:
                self.group.restart()
            case _:
                self.beat(member)

    def regrant(self, member: Consumer) -> None:
        names = frozenset(name for name in self.NAMES if self.random.random() < 0.6)
        self.sees[member.member_id], member.rights = names, seeing(*names, holder=member.member_id)

    def change(self, name: str) -> None:
        if name in self.topics and self.random.random() < 0.5:
            del self.topics[name]
            self.group.topics.remove(name)
        else:
            partitions, incarnation = self.topics.get(name) or (0, next(self.incarnations))
            self.topics[name] = partitions + 1, incarnation
            self.group.put_topic(name, *self.topics[name])

    def beat(self, member: Consumer) -> None:
        answer = self.group.heartbeat(member)
        hidden = {self.id_of(name) for name in self.topics.keys() - self.sees[member.member_id]}
        assert not hidden & set(answer.assigned or ()), "a member is told of nothing that it may not see"
        self.group.apply_told(member)

    def check_peace(self) -> None:
        for _ in range(10):
            for member in self.members:
                self.beat(member)
        held = [(topic, index) for each in self.members for topic, indexes in each.owned.items() for index in indexes]
        seen = frozenset[str]().union(*self.sees.values()) & self.topics.keys()
        assert len(held) == len(set(held))
        assert set(held) == {(self.id_of(name), index) for name in seen for index in range(self.topics[name][0])}

    def id_of(self, name: str) -> UUID:
        return topic_id(name, self.topics[name][1])


@pytest.mark.parametrize("seed", range(amount(long=200, short=10)))
def test_whatever_happens_members_read_together_all_that_one_of_them_may_see(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(4):
        for _ in range(15):
            crowd.step()
        crowd.check_peace()
