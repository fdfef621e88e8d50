"""Short words for histories that a test tells line by line."""

from headwater.testing.oracles.checkers import Recorder, Violation, ViolationKind, check

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
TOPIC = "orders"


class Run(Recorder):
    """A recorder with one topic, where most sends are acknowledged and most consumers are read_committed."""

    def sent(self, value: str, offset: int, partition: int = 0, producer: str = "p", **how: object) -> None:
        self.send(producer, TOPIC, value, partition=partition, **how)  # type: ignore[arg-type]
        self.acknowledged(TOPIC, value, partition, offset)

    def given(
        self, records: list[tuple[int, str]], partition: int = 0, consumer: str = "c", isolation: str = COMMITTED
    ) -> None:
        self.polled(consumer, isolation, [(TOPIC, partition, offset, value) for offset, value in records])

    def ends_with(
        self, records: list[tuple[int, str]], end: int, partition: int = 0, isolation: str = COMMITTED
    ) -> None:
        self.final_read(isolation, TOPIC, partition, records, end=end)

    def committed(self, transaction: str, outcome: str = "ok") -> None:
        self.commit(transaction)
        self.ended(transaction, outcome)

    def aborted(self, transaction: str) -> None:
        self.abort(transaction)
        self.ended(transaction, "ok")

    def violations(self) -> list[Violation]:
        return check(self.history())

    def kinds(self) -> list[ViolationKind]:
        return [violation.kind for violation in self.violations()]
