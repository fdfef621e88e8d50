"""How a subscription is pushed: as the cluster keeps it (settings of the group) and as clients of HTTP give it."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from headwater.client.admin.configs import GroupConfig

PREFIX: Final = "headwater.push."
URL: Final = f"{PREFIX}url"
SECRET: Final = f"{PREFIX}secret"
STOPPED: Final = f"{PREFIX}stopped"
FORMAT, ORDER = f"{PREFIX}format", f"{PREFIX}order"
BATCH, CONCURRENCY = f"{PREFIX}batch.records", f"{PREFIX}concurrency"
TIMEOUT, ATTEMPTS = f"{PREFIX}timeout.ms", f"{PREFIX}attempts"
BACKOFF, MAX_BACKOFF = f"{PREFIX}backoff.ms", f"{PREFIX}backoff.max.ms"
DAY_MS = 86_400_000

Format = Literal["plain", "cloudevents-binary", "cloudevents-structured"]
Order = Literal["none", "key", "partition"]
Rest = Annotated[int, Meta(ge=1, le=DAY_MS)]


class PushIn(Struct, forbid_unknown_fields=True):
    """Where to send records, and how. What is left out stays as it is, or has its default."""

    url: Annotated[str, Meta(min_length=8, max_length=2048, description="http or https.")] | UnsetType = UNSET
    secret: Annotated[str, Meta(max_length=256, description="Signs requests. It is never shown again.")] | UnsetType = (
        UNSET
    )
    format: Format | UnsetType = UNSET
    order: Order | UnsetType = UNSET
    batch_records: Annotated[int, Meta(ge=1, le=1_000)] | UnsetType = UNSET
    concurrency: Annotated[int, Meta(ge=1, le=256)] | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=100, le=300_000)] | UnsetType = UNSET
    attempts: Annotated[int, Meta(ge=1, le=1_000)] | UnsetType = UNSET
    backoff_ms: Rest | UnsetType = UNSET
    max_backoff_ms: Rest | UnsetType = UNSET


class PushOut(Struct):
    url: str
    is_signed: bool
    format: Format
    order: Order
    batch_records: int
    concurrency: int
    timeout_ms: int
    attempts: int | None
    """null for a stream: its records are sent until they are taken."""
    backoff_ms: int
    max_backoff_ms: int
    stopped: str | None
    """Why nothing is sent any more."""


_KEYS: Final = {
    "url": URL,
    "secret": SECRET,
    "format": FORMAT,
    "order": ORDER,
    "batch_records": BATCH,
    "concurrency": CONCURRENCY,
    "timeout_ms": TIMEOUT,
    "attempts": ATTEMPTS,
    "backoff_ms": BACKOFF,
    "max_backoff_ms": MAX_BACKOFF,
}
ALL_KEYS: Final = (*_KEYS.values(), STOPPED)


@dataclass(frozen=True, slots=True)
class PushSettings:
    url: str
    secret: str = ""
    is_secret_withheld: bool = False
    """It has one that the cluster does not show this gateway."""
    format: Format = "plain"
    order: Order = "none"
    batch_records: int = 1
    concurrency: int = 32
    timeout_ms: int = 10_000
    attempts: int | None = 10
    backoff_ms: int = 500
    max_backoff_ms: int = 60_000
    stopped: str = ""

    @property
    def is_batched(self) -> bool:
        return self.batch_records > 1

    def out(self) -> PushOut:
        return PushOut(
            url=self.url,
            is_signed=bool(self.secret) or self.is_secret_withheld,
            format=self.format,
            order=self.order,
            batch_records=self.batch_records,
            concurrency=self.concurrency,
            timeout_ms=self.timeout_ms,
            attempts=self.attempts,
            backoff_ms=self.backoff_ms,
            max_backoff_ms=self.max_backoff_ms,
            stopped=self.stopped or None,
        )


def push_settings(group: GroupConfig, *, is_queue: bool) -> PushSettings | None:
    """From a group's configuration, which the broker has checked. None if it is not pushed."""
    config = group.values
    url = config.get(URL, "")
    if not url:
        return None
    return PushSettings(
        url=url,
        secret=config.get(SECRET, ""),
        is_secret_withheld=SECRET in group.withheld,
        format=config.get(FORMAT, "plain"),  # type: ignore[arg-type]
        order=config.get(ORDER, "none"),  # type: ignore[arg-type]
        batch_records=int(config.get(BATCH, "1")),
        concurrency=int(config.get(CONCURRENCY, "32")),
        timeout_ms=int(config.get(TIMEOUT, "10000")),
        attempts=int(config.get(ATTEMPTS, "10")) if is_queue else None,
        backoff_ms=int(config.get(BACKOFF, "500")),
        max_backoff_ms=int(config.get(MAX_BACKOFF, "60000")),
        stopped=config.get(STOPPED, ""),
    )


def push_config(given: PushIn) -> dict[str, str]:
    """What was given, as settings of the group."""
    found = {key: getattr(given, name) for name, key in _KEYS.items()}
    return {key: str(value) for key, value in found.items() if value is not UNSET}
