"""Members of a group that read, and what they read."""

from collections.abc import Callable

from tests.clients.judged import Client, Member, Received, Record
from tests.support.eventually import eventually

PARTITIONS = 4
SETTLE_TIMEOUT_S = 60.0
POLL_S = 0.1


class Reading:
    """Members of one group that are polled in turn, and all that they received."""

    def __init__(self, *members: Member) -> None:
        self.members = list(members)
        self.received: list[Received] = []

    def until(self, settled: Callable[[], bool]) -> None:
        def look() -> bool:
            if settled():
                return True
            for member in self.members:
                self.received += member.poll(POLL_S)
            return False

        eventually(look, lambda: f"{self.shares()}, {len(self.received)} received", patience_s=SETTLE_TIMEOUT_S)

    def until_received(self, count: int) -> None:
        self.until(lambda: len(self.received) >= count)

    def until_shared(self) -> None:
        """Every partition has one reader, and every member has a share."""

        def shared() -> bool:
            shares = self.shares()
            together = [partition for share in shares for partition in share]
            return all(shares) and sorted(together) == [*range(PARTITIONS)]

        self.until(shared)

    def shares(self) -> list[set[int]]:
        return [member.assigned() for member in self.members]

    def commit(self) -> None:
        for member in self.members:
            member.commit()

    def close(self) -> None:
        for member in self.members:
            member.close()


def feed(confluent: Client, topic: str, first: int, count: int) -> None:
    """`count` numbered records in each partition."""
    confluent.produce(
        topic,
        [
            Record(b"%d" % number, partition=partition)
            for number in range(first, first + count)
            for partition in range(PARTITIONS)
        ],
    )


def assert_each_once_and_in_order(received: list[Received], count: int) -> None:
    for partition in range(PARTITIONS):
        offsets = [record.offset for record in received if record.partition == partition]
        assert offsets == [*range(count)], f"partition {partition}"
