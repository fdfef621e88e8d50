"""A classic member of a group."""

from headwater.groups.consumer_protocol import read_assignment
from headwater.groups.effects import JoinAnswer
from headwater.groups.members import MemberProtocol
from headwater.groups.requests import JoinRequest, SyncRequest
from headwater.model.errors import ErrorCode
from tests.groups.driven_consumers import GROUP, DrivenConsumers
from tests.groups.driven_group import join_request


def subscription(*topics: str, owned: set[int] = frozenset()) -> bytes:  # type: ignore[assignment]
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    held = b""
    if owned:
        held = b"\x00\x06orders" + len(owned).to_bytes(4, "big") + b"".join(each.to_bytes(4, "big") for each in owned)
    head = b"\x00\x01" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"
    return head + (b"\x00\x00\x00\x01" + held if owned else b"\x00\x00\x00\x00")


class Classic:
    """A client of the classic protocol: it gives up everything before it joins, or keeps what it may."""

    def __init__(self, group: DrivenConsumers, is_cooperative: bool = False, instance_id: str | None = None) -> None:
        self.group, self.is_cooperative, self.instance_id = group, is_cooperative, instance_id
        self.member_id, self.generation = "", -1
        self.owned: set[int] = set()
        self.protocol: str | None = None

    def request(self) -> JoinRequest:
        names = ("cooperative-sticky",) if self.is_cooperative else ("range", "roundrobin")
        owned = self.owned if self.is_cooperative else set()
        protocols = tuple(MemberProtocol(name, subscription("orders", owned=owned)) for name in names)
        return join_request(
            self.member_id, instance_id=self.instance_id, protocols=protocols, rebalance_timeout_ms=20_000
        )

    def join(self) -> JoinAnswer | None:
        if not self.is_cooperative:
            self.owned = set()
        answer: JoinAnswer | None = self.group.classic_join(self.request())
        if answer is not None and answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = self.group.classic_join(self.request())
        if answer is not None:
            self.joined(answer)
        return answer

    def joined(self, answer: JoinAnswer) -> None:
        assert answer.error is ErrorCode.NONE
        self.member_id, self.generation, self.protocol = answer.member_id, answer.generation, answer.protocol

    def sync(self, assignments: dict[str, bytes] | None = None) -> ErrorCode:
        request = SyncRequest(self.member_id, self.instance_id, self.generation, None, None, assignments or {})
        answer = self.group.classic_sync(request)
        if answer is None:
            return ErrorCode.REBALANCE_IN_PROGRESS  # It waits for its leader, and these clients do not.
        if answer.error is ErrorCode.NONE:
            self.owned = {index for _, index in read_assignment(answer.assignment)}
        error: ErrorCode = answer.error
        return error

    def heartbeat(self) -> ErrorCode:
        return self.group.shard.heartbeat(GROUP, self.member_id, self.instance_id, self.generation, self.group.now)

    def live(self) -> None:
        """One round of what a consumer does."""
        if self.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()
