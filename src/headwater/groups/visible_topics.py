"""Which topics the members of a consumer group read by their patterns, where a client need not see every topic.

A pattern stands for the topics that it matches and that its own member may see. What that is, is looked up when the
member sends a heartbeat with rights that are new, and for a topic that is new at once: each member sees by its own
rights, also where several have the same pattern.

Nothing here is durable. A member that was not heard of since the group was read from its log sees the topics that it
was to read at last: it was allowed to see these.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from headwater.groups.consumer_events import ConsumerMemberStored

Names: TypeAlias = frozenset[str]
NO_NAMES: Names = frozenset()


@dataclass(frozen=True, slots=True)
class TopicRights:
    """What a member may see of topics that it does not name."""

    holder: object
    """Rights of one holder and one version are the same rights."""
    version: int
    shows: Callable[[str], bool]

    def same_as(self, other: "TopicRights") -> bool:
        return self.holder is other.holder and self.version == other.version


@dataclass(slots=True)
class _Sight:
    regex: str
    rights: TopicRights
    names: Names
    is_stale: bool = False


class VisibleTopics:
    def __init__(self) -> None:
        self._sights: dict[str, _Sight] = {}
        """By member."""

    def of_member(self, member: ConsumerMemberStored) -> Names | None:
        """None: it was not heard of."""
        sight = self._sights.get(member.member_id)
        return sight.names if sight is not None and sight.regex == member.topic_regex else None

    def is_known(self, member: ConsumerMemberStored, rights: TopicRights) -> bool:
        """Whether it was looked up what the member sees by these rights."""
        sight = self._sights.get(member.member_id)
        return (
            sight is not None
            and not sight.is_stale
            and sight.regex == member.topic_regex
            and sight.rights.same_as(rights)
        )

    def look(self, member: ConsumerMemberStored, rights: TopicRights, matching: Iterable[str]) -> Names:
        """The topics that the member sees of those that its pattern matches."""
        assert member.topic_regex is not None, "only members with a pattern look"
        names = frozenset(filter(rights.shows, matching))
        for other in self._sights.values():
            if other.names == names:
                names = other.names  # one set for all that see the same, which are most
                break
        self._sights[member.member_id] = _Sight(member.topic_regex, rights, names)
        return names

    def topics_changed(self, changed: Names, matching: Callable[[str], Collection[str]]) -> None:
        """Topics were created, changed or deleted. `matching` has those that exist and that a pattern matches."""
        results: dict[tuple[Names, Names], Names] = {}
        for sight in self._sights.values():
            matched = matching(sight.regex)
            seen = frozenset(name for name in changed if name in matched and sight.rights.shows(name))
            key = sight.names, seen
            if key not in results:
                results[key] = (sight.names - changed) | seen
            sight.names = results[key]

    def lost_track(self) -> None:
        """Topics changed, and it is not known which: every member is to look again."""
        for sight in self._sights.values():
            sight.is_stale = True

    def forget(self, member_id: str) -> None:
        self._sights.pop(member_id, None)
