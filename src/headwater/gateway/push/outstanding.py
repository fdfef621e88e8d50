"""What one client was sent and has not acknowledged: it limits what it is sent, and goes back when the client goes."""

from collections.abc import Iterable

from headwater.gateway.subscriptions.members.deliveries import Delivery
from headwater.gateway.subscriptions.members.member_pool import Member
from headwater.gateway.subscriptions.members.pending_acks import AckType
from headwater.gateway.subscriptions.members.queue_member import QueueMember


class Outstanding:
    """Of a queue. A stream has none: what was not committed comes again by itself."""

    def __init__(self, member: Member) -> None:
        self._member = member if isinstance(member, QueueMember) else None
        self._sent: dict[int, Delivery] = {}

    def sent(self, deliveries: Iterable[Delivery]) -> None:
        if self._member is not None:
            self._sent.update((each.lease, each) for each in deliveries)

    def count(self) -> int:
        """As of now: others may settle them, and leases run out."""
        if self._member is not None:
            self._sent = {lease: each for lease, each in self._sent.items() if self._member.holds(each)}
        return len(self._sent)

    def give_back(self) -> None:
        if self._member is not None:
            self._member.acknowledge_soon(self._sent.values(), AckType.RELEASE)
            self._sent.clear()
