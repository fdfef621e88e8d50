"""What clients use of their quotas now, from the broker's metrics address: the Kafka protocol has no request for it."""

from dataclasses import dataclass
from typing import Any, Self

from headwater.cli.metrics_address import read_page
from headwater.security.quota_entities import EntityKind, QuotaEntity


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedQuota:
    """Of all connections of an entity to one broker."""

    entity: QuotaEntity
    key: str
    limit: float
    rate: float
    waits_ms: int
    """How long the entity is throttled from now on."""
    violations: int
    throttled_ms: int

    @classmethod
    def of(cls, used: dict[str, Any]) -> Self:
        names = ((kind, used[kind.value.replace("-", "_")]) for kind in EntityKind)
        return cls(
            entity=QuotaEntity(tuple((kind, name) for kind, name in names if name is not None)),
            key=str(used["quota"]),
            limit=float(used["limit"]),
            rate=float(used["rate"]),
            waits_ms=int(used["waits_ms"]),
            violations=int(used["violations"]),
            throttled_ms=int(used["throttled_ms"]),
        )

    @property
    def share(self) -> float:
        return self.rate / self.limit


def read_usage(metrics: str, token: bytes | None = None) -> list[UsedQuota]:
    """Those closest to their limits, or furthest above, come first. Raises CommandFailed."""
    used = read_page(metrics, "/quotas", lambda page: list(map(UsedQuota.of, page["usage"])), token)
    return sorted(used, key=lambda each: (-each.waits_ms, -each.share, str(each.entity), each.key))
