"""What requests about subscriptions hold, and what is answered."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from headwater.gateway.records.positions import HELP
from headwater.gateway.records.record_json import MAX_INT32, Offset
from headwater.gateway.subscriptions.members.deliveries import DeliveredRecord
from headwater.gateway.subscriptions.members.leases import MAX_ACK_ID_CHARS
from headwater.gateway.subscriptions.push_settings import PushIn, PushOut

NAME_PATTERN = "^[A-Za-z0-9._:@~-]{1,200}$"
MAX_PULL = 1_000
MAX_PULL_BYTES = 16 * 1024 * 1024
MAX_WAIT_MS = 30_000
MAX_ACKS = 10_000
MAX_LETTERS = 1_000
MAX_REDRIVE = 100_000

Kind = Literal["stream", "queue"]
Retention = Annotated[int, Meta(ge=-1, le=2**63 - 1, description="-1: as long as the topic allows.")]
Text = Annotated[str, Meta(max_length=4096)]
Topic = Annotated[str, Meta(min_length=1, max_length=249)]


class SubscriptionIn(Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """A subscription to make."""

    name: Annotated[str, Meta(pattern=NAME_PATTERN)]
    topic: Topic
    kind: Kind = "stream"
    from_: Annotated[str, Meta(max_length=64, description=f"Where it begins: {HELP}.")] = "end"
    retention_ms: Retention | None = None
    filter: (
        Annotated[Text, Meta(description="Of a queue: deliver only records whose key and headers are so.")] | None
    ) = None
    order: (
        Annotated[Literal["none", "key"], Meta(description="Of a queue: never two records of a key at once.")] | None
    ) = None
    dead_letter_topic: Annotated[str, Meta(max_length=249, description="Of a queue.")] | None = None
    config: Annotated[dict[str, Text], Meta(max_length=50)] = {}
    push: PushIn | None = None


class SubscriptionChange(Struct, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    config: Annotated[dict[str, Text | None], Meta(max_length=50, description="null: back to the default.")] = {}
    paused: bool | UnsetType = UNSET
    retention_ms: Retention | UnsetType = UNSET
    push: Annotated[PushIn | None, Meta(description="null: not pushed any more.")] | UnsetType = UNSET


class Pushing(Struct):
    """What this gateway does about a push."""

    in_flight: int
    window: int
    """Requests that may be under way now."""
    last_failure: str | None


class Subscription(Struct, omit_defaults=False):
    name: str
    topic: str | None
    kind: Kind
    state: str
    lag: int | None
    """The sum of what is known; null if nothing is."""
    unknown_partitions: int
    """How many partitions that it reads have no position, and are counted from where it would begin, or no leader, and
    are not counted."""
    members: int
    in_flight: int | None
    """Of a queue: records that are held through this gateway."""
    dead_letter_topic: str | None
    config: dict[str, str]
    push: PushOut | None
    pushing: Pushing | None = None


class Subscriptions(Struct):
    subscriptions: list[Subscription]


class PullIn(Struct, forbid_unknown_fields=True):
    max_records: Annotated[int, Meta(ge=1, le=MAX_PULL)] = 100
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_PULL_BYTES, description="At least one record is given.")] = 1024 * 1024
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS, description="Wait so long for a first record.")] = 0
    rewind: Annotated[bool, Meta(description="Of a stream: go on at what is committed.")] = False


class Pulled(Struct):
    records: list[DeliveredRecord]


AckIds = Annotated[list[Annotated[str, Meta(max_length=MAX_ACK_ID_CHARS)]], Meta(max_length=MAX_ACKS)]


class AckIn(Struct, forbid_unknown_fields=True):
    accept: AckIds = []
    release: AckIds = []
    reject: AckIds = []
    extend: AckIds = []


class AckResult(Struct):
    ack_id: str
    status: Literal["done", "expired", "settled", "unknown", "failed"]


class AckResults(Struct):
    results: list[AckResult]


class CommitOffset(Struct, forbid_unknown_fields=True):
    partition: Annotated[int, Meta(ge=0, le=MAX_INT32)]
    offset: Annotated[Offset, Meta(description="Of the next record to read.")]


class CommitIn(Struct, forbid_unknown_fields=True):
    offsets: Annotated[list[CommitOffset], Meta(min_length=1, max_length=10_000)]


class Letter(Struct):
    record: DeliveredRecord
    origin: str | None
    """<topic>/<partition>/<offset> of the record that was given up."""
    group: str | None
    reason: str | None
    delivery_count: int | None


class Letters(Struct):
    topic: str
    letters: list[Letter]


class LettersQuery(Struct):
    limit: Annotated[int, Meta(ge=1, le=MAX_LETTERS)] = 100


class RedriveIn(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_REDRIVE)] = 10_000
    filter: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    to: Topic | None = None
    dry_run: bool = False


class Redriven(Struct):
    topic: str
    redriven: int
    targets: dict[str, int]
    filtered: int
    sent_before: int
    gone: int
    dry_run: bool
