"""A share partition as nobody should build it: one object for each record, every rule spelled out for each of them.

The real one must behave the same. Time, log and members come from the test.
"""

from dataclasses import dataclass

from headwater.queues.settings import QueueSettings, ShareOrder


@dataclass
class ModelRecord:
    """A record of the log, whatever the group made of it."""

    offset: int
    exists: bool = True
    key: bytes | None = None
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    matches: bool = True
    # What the group made of it
    state: str = "available"
    count: int = 0
    holder: str = ""
    lease_until_ms: int = 0
    backoff_until_ms: int = 0
    end: str = ""
    """accepted, archived, filtered, gap, rejected, limit or expired."""

    def is_settled(self) -> bool:
        return self.end != ""


class Model:
    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.records: list[ModelRecord] = []

    def held_by(self, member: str) -> list[int]:
        return [each.offset for each in self.records if each.state == "acquired" and each.holder == member]

    def may_be_delivered(self, offset: int, member: str, now_ms: int) -> str:
        """Empty, or why not."""
        record = self.records[offset]
        if not record.exists or not record.matches:
            return "is not for the group"
        if record.is_settled():
            return f"is {record.end}"
        if record.state == "acquired":
            return f"is held by {record.holder}"
        if record.backoff_until_ms > now_ms:
            return "rests"
        if (record.deliver_at_ms or 0) > now_ms:
            return "is delayed"
        if record.expires_at_ms is not None and record.expires_at_ms <= now_ms:
            return "is expired"
        if self.settings.order is ShareOrder.KEY and record.key is not None:
            return self._out_of_order(record, member, now_ms)
        return ""

    def _out_of_order(self, record: ModelRecord, member: str, now_ms: int) -> str:
        for other in self.records:
            if (
                other.key != record.key
                or other is record
                or other.is_settled()
                or not other.exists
                or not other.matches
            ):
                continue
            if other.state == "acquired" and other.holder != member:
                return f"has the key of {other.offset}, held by {other.holder}"
            if other.state == "acquired" and other.offset > record.offset:
                return f"comes after {other.offset} of its key"
            is_expired = other.expires_at_ms is not None and other.expires_at_ms <= now_ms
            is_delayed = (other.deliver_at_ms or 0) > now_ms
            if other.offset < record.offset and other.state != "acquired" and not is_expired and not is_delayed:
                return f"comes before {other.offset} of its key"
        return ""

    def acquired(self, offset: int, member: str, now_ms: int) -> None:
        record = self.records[offset]
        record.state, record.holder = "acquired", member
        record.count += 1
        record.lease_until_ms = now_ms + self.settings.record_lock_duration_ms

    def failed(self, offset: int, now_ms: int, delay_ms: int) -> None:
        record = self.records[offset]
        record.state, record.holder = "available", ""
        if record.expires_at_ms is not None and record.expires_at_ms <= now_ms:
            record.end = "expired"
        elif record.count >= self.settings.delivery_count_limit:
            record.end = "limit"
        else:
            record.backoff_until_ms = now_ms + delay_ms if delay_ms else 0

    def resolved(self, offset: int, end: str) -> None:
        record = self.records[offset]
        assert not record.is_settled(), f"{offset} is {record.end} already"
        record.state, record.end = "settled", end

    def restarted(self) -> None:
        """Deliveries under way are forgotten."""
        for record in self.records:
            if record.state == "acquired":
                record.state, record.holder = "available", ""
                record.count -= 1
