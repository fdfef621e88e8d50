"""What the audit says: who did what, or tried to, and which rule decided. One record of the audit topic is one event,
or several that are equal, in JSON without a key (docs/formats.md):

    {"version":1,"time":"2026-11-19T04:26:00.123Z","node":1,"kind":"authorization","verdict":"refused",
     "listener":"clients","address":"10.0.0.7","principal":"User:alice","api":"DescribeAcls","operation":"describe",
     "resource_type":"cluster","name":"kafka-cluster","rule":"denied: the resource has no bindings","count":1}

A field that is empty is left out, and one that is not known is ignored. Texts come from clients: they are cut at
limits, so that an event is seldom larger than a kilobyte. No field ever holds a secret: of a setting that was altered
the name is told, and never the value.
"""

import enum
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

VERSION: Final = 1
MAX_TEXT_CHARS: Final = 512
"""Of each field. The names of topics and users are shorter, those of groups need not be."""
MAX_CHANGES: Final = 32
"""Things that one event says were changed. The last one then counts those that are left out."""
CUT: Final = "…"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class AuditKind(enum.StrEnum):
    AUTHENTICATION = "authentication"
    AUTHORIZATION = "authorization"
    MANAGEMENT = "management"
    DATA = "data"
    """Records were written or read: one event for each principal and topic."""
    NODE = "node"
    """A node started or stopped."""
    OVERFLOW = "overflow"
    """Events were left out; the count says how many."""


class AuditVerdict(enum.StrEnum):
    ALLOWED = "allowed"
    REFUSED = "refused"
    WOULD_REFUSE = "would-refuse"
    """Allowed, because access control only observes."""
    FAILED = "failed"
    DONE = "done"


DENIALS: Final = frozenset({AuditVerdict.REFUSED, AuditVerdict.WOULD_REFUSE, AuditVerdict.FAILED})


class CorruptAuditRecord(ValueError):
    """Bytes that are no record of the audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """What happened, without when and how often: events that are equal are counted together."""

    kind: AuditKind
    verdict: AuditVerdict
    operation: str = ""
    """As `headwater acl` writes it where access control decided; of a management event what was done."""
    listener: str = ""
    address: str = ""
    principal: str = ""
    mechanism: str = ""
    """How the client said who it is."""
    api: str = ""
    resource_type: str = ""
    name: str = ""
    """Of the resource. One that was cut at its end is no name of a resource."""
    pattern: str = ""
    """Of a binding: literal or prefixed."""
    rule: str = ""
    """Which rule decided, or why it failed."""
    client_id: str = ""
    changes: tuple[str, ...] = ()
    """What was changed: of settings the names alone."""
    is_others: bool = False
    """It stands for events of one source that were too many to be told apart."""

    def __post_init__(self) -> None:
        for name in _TEXTS:
            text = getattr(self, name)
            if len(text) > MAX_TEXT_CHARS:
                object.__setattr__(self, name, cut(text))
        if self.changes:
            object.__setattr__(self, "changes", _few(self.changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    event: AuditEvent
    time_ms: int
    """When it happened; of several, when the first of them did."""
    until_ms: int
    node: int
    count: int = 1

    def to_json(self) -> bytes:
        event = {name: value for name in _TEXTS if (value := getattr(self.event, name))}
        content: dict[str, Any] = {
            "version": VERSION,
            "time": time_text(self.time_ms),
            "node": self.node,
            "kind": self.event.kind.value,
            "verdict": self.event.verdict.value,
            **event,
        }
        if self.event.changes:
            content["changes"] = self.event.changes
        if self.event.is_others:
            content["others"] = True
        content["count"] = self.count
        if self.until_ms != self.time_ms:
            content["until"] = time_text(self.until_ms)
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Raises CorruptAuditRecord."""
        try:
            content = json.loads(data)
            if not isinstance(content, dict) or content["version"] != VERSION:
                raise CorruptAuditRecord(f"an audit record of version {VERSION} is needed")
            texts = {name: _text(content.get(name, "")) for name in _TEXTS}
            event = AuditEvent(
                kind=AuditKind(content["kind"]),
                verdict=AuditVerdict(content["verdict"]),
                changes=tuple(map(_text, content.get("changes", ()))),
                is_others=content.get("others", False) is True,
                **texts,
            )
            time_ms = _milliseconds(content["time"])
            until_ms = _milliseconds(content.get("until", content["time"]))
            return cls(
                event=event,
                time_ms=time_ms,
                until_ms=until_ms,
                node=_number(content["node"]),
                count=_number(content["count"]),
            )
        except CorruptAuditRecord:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CorruptAuditRecord(f"no audit record: {error}"[:MAX_TEXT_CHARS]) from error


_TEXTS: Final = tuple(
    each.name for each in fields(AuditEvent) if each.name not in ("kind", "verdict", "changes", "is_others")
)


def time_text(time_ms: int) -> str:
    """In UTC, to the millisecond, as RFC 3339 has it."""
    return (_EPOCH + time_ms * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + CUT


def _few(changes: Iterable[str]) -> tuple[str, ...]:
    shown = [cut(each) for each in changes]
    if len(shown) > MAX_CHANGES:
        shown[MAX_CHANGES - 1 :] = [f"and {len(shown) - MAX_CHANGES + 1} more"]
    return tuple(shown)


def _milliseconds(text: object) -> int:
    if not isinstance(text, str):
        raise CorruptAuditRecord("a time is a text")
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise CorruptAuditRecord("a time has a zone")
    return (time - _EPOCH) // _MILLISECOND


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise CorruptAuditRecord("a text is needed")
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CorruptAuditRecord("a whole number is needed")
    return value
