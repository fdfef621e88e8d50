"""The members of a classic group: their protocols, their leader, and which of them wait for an answer.

The roster keeps counts beside its members, so that "have all of them joined" and "which protocols do all of them
support" cost the same for ten members and for ten thousand.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.groups.effects import ReplyTo


@dataclass(frozen=True, slots=True)
class MemberProtocol:
    """An assignment protocol that a member supports, with the member's metadata for the leader."""

    name: str
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    member_id: str
    instance_id: str | None
    """Set for a static member (KIP-345), which keeps its assignment when it gets a new member id."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    is_new: bool = True
    """The member has not been in any generation yet."""
    joining: ReplyTo | None = None
    """The JoinGroup that waits for the rebalance. Change it through the roster, which counts."""
    syncing: ReplyTo | None = None
    """The SyncGroup that waits for the leader's assignment."""

    def metadata(self, protocol: str | None) -> bytes:
        for candidate in self.protocols:
            if candidate.name == protocol:
                return candidate.metadata
        return b""


class Roster:
    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._by_instance: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        self._joining = 0
        self.metadata_bytes = 0
        """Size of the metadata of all members, for all their protocols."""
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def id_of_instance(self, instance_id: str) -> str | None:
        return self._by_instance.get(instance_id)

    def add(self, member: ClassicMember) -> None:
        """The first member leads until another is elected."""
        assert member.member_id not in self._members, "a member id is given once"
        assert member.joining is None, "a member waits only after it was added"
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._by_instance, "an instance has one member"
            self._by_instance[member.instance_id] = member.member_id
        self._note_protocols(member)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        self._forget_protocols(member)
        if member.joining is not None:
            self._joining -= 1
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Replace the member id of a static member; it stays leader if it was."""
        assert member.instance_id is not None, "only a static member changes its id"
        del self._members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self._members[member_id] = member
        self._by_instance[member.instance_id] = member_id

    def set_protocols(self, member: ClassicMember, protocols: tuple[MemberProtocol, ...]) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self._note_protocols(member)

    def set_joining(self, member: ClassicMember, to: ReplyTo | None) -> ReplyTo | None:
        """Set the waiting JoinGroup; return the JoinGroup that waited before."""
        before, member.joining = member.joining, to
        self._joining += (to is not None) - (before is not None)
        return before

    @property
    def joining(self) -> int:
        return self._joining

    def supports_any(self, protocols: tuple[MemberProtocol, ...], besides: ClassicMember | None) -> bool:
        """Whether all members, leaving out `besides`, support one of these protocols."""
        others = len(self._members) - (besides is not None)
        own = {protocol.name for protocol in besides.protocols} if besides is not None else set()
        return any(self._supporters[each.name] - (each.name in own) == others for each in protocols)

    def elect_joined_leader(self) -> None:
        """Replace a leader that did not rejoin by a member that did."""
        leader = self._members.get(self.leader) if self.leader is not None else None
        if leader is None or leader.joining is None:
            self.leader = next(member.member_id for member in self if member.joining is not None)

    def vote(self) -> str | None:
        """Each member votes for the first of its protocols that all support. The leader's order decides a tie."""
        candidates = {name for name, count in self._supporters.items() if count == len(self._members)}
        votes: Counter[str] = Counter()
        for member in self:
            for protocol in member.protocols:
                if protocol.name in candidates:
                    votes[protocol.name] += 1
                    break
        leader = self._members.get(self.leader) if self.leader is not None else None
        order = [protocol.name for protocol in leader.protocols] if leader is not None else []
        return max((name for name in order if name in votes), key=votes.__getitem__, default=None)

    def max_rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def _note_protocols(self, member: ClassicMember) -> None:
        self.metadata_bytes += size_bytes(member.protocols)
        self._supporters.update({protocol.name for protocol in member.protocols})

    def _forget_protocols(self, member: ClassicMember) -> None:
        self.metadata_bytes -= size_bytes(member.protocols)
        for name in {protocol.name for protocol in member.protocols}:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]


def size_bytes(protocols: tuple[MemberProtocol, ...]) -> int:
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)
