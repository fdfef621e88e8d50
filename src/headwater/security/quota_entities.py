"""What quotas are set for, which of them counts for a client, and whose usage it limits: as in Kafka.

An entity is a user, a client id, a user and a client id, or an IP address; in place of a name it may have the default,
which stands for each name without an entity of its own. Of the entities that have a limit for the key, the first
counts:

    user        client id         metered is
    alice       app               alice with app
    alice       default           alice with app
    alice                         alice, with all her client ids
    default     app               alice with app
    default     default           alice with app
    default                       alice, with all her client ids
                app               app, of all users
                default           app, of all users

A limit of a default is thus a limit for each name that it stands for, and not for all of them together. Kafka lets a
client without an id escape the defaults for client ids; here they hold for it, too.
"""

import hashlib
import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from headwater.model.errors import ErrorCode, RequestError

MAX_NAME_CHARS: Final = 1_024
MAX_READABLE_KEY_CHARS: Final = 300
"""Longer keys of the metadata store are hashes: it takes 512 characters, and a distinguished name may have more."""
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
_WHOLE_WITHIN: Final = 1e-6
"""Kafka takes a value for whole that is as near."""


class EntityKind(StrEnum):
    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class QuotaKey(StrEnum):
    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


CLIENT_KEYS: Final = tuple(key for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE)
_WHOLE_LIMITS: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: MAX_INT64,
    QuotaKey.CONSUMER_BYTE_RATE: MAX_INT64,
    QuotaKey.CONNECTION_CREATION_RATE: MAX_INT32,
}
_KIND_ORDER: Final = {kind: number for number, kind in enumerate(EntityKind)}

Quotas = Mapping[QuotaKey, float]
"""The limits of one entity, per second, or in percent."""


class MalformedQuota(ValueError):
    """What the metadata store has under the key of a quota is none that this version knows."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    parts: tuple[tuple[EntityKind, str | None], ...]
    """In the order of the kinds. None stands for the default."""

    @classmethod
    def of(cls, parts: Iterable[tuple[str, str | None]]) -> "QuotaEntity":
        """An entity as a client names it. Raises RequestError."""
        names: dict[EntityKind, str | None] = {}
        for text, name in parts:
            kind = _kind(text, ErrorCode.INVALID_REQUEST)
            if kind in names:
                raise _invalid(f"A quota entity has one {kind}.")
            names[kind] = _checked_name(kind, name)
        if not names:
            raise _invalid("A quota entity has a user, a client id or an IP address.")
        if EntityKind.IP in names and len(names) > 1:
            raise _invalid("A quota entity with an IP address has neither a user nor a client id.")
        return cls(tuple(sorted(names.items(), key=lambda part: _KIND_ORDER[part[0]])))

    def __contains__(self, kind: EntityKind) -> bool:
        return any(each == kind for each, _ in self.parts)

    def name(self, kind: EntityKind) -> str | None:
        """None: the default. The entity must have the kind."""
        return dict(self.parts)[kind]

    def key(self) -> str:
        """Under which the metadata store has it: the same for equal entities, always."""
        text = ",".join(
            f"{kind}={'*' if name is None else quote(name, '', errors='surrogatepass')}" for kind, name in self.parts
        )
        if len(text) <= MAX_READABLE_KEY_CHARS:
            return text
        return f"sha256-{hashlib.sha256(text.encode()).hexdigest()}"

    def __str__(self) -> str:
        return ", ".join(f"default {kind}" if name is None else f"{kind} {name!r}" for kind, name in self.parts)


def check_quota(entity: QuotaEntity, key: str, value: float) -> QuotaKey:
    """Raise RequestError unless the entity may have this limit."""
    is_address = EntityKind.IP in entity
    if key not in (QuotaKey.CONNECTION_CREATION_RATE,) if is_address else key not in CLIENT_KEYS:
        raise _invalid(f"There is no quota {key[:100]!r} for {entity}.")
    known = QuotaKey(key)
    if not math.isfinite(value):
        raise _invalid(f"The quota {known} must be a number.")
    if value <= 0:
        raise _invalid(f"The quota {known} must be greater than 0.")
    most = _WHOLE_LIMITS.get(known)
    if most is not None and value > float(most):
        raise _invalid(f"The quota {known} must not be greater than {most}.")
    if most is not None and value % 1 > _WHOLE_WITHIN:
        raise _invalid(f"The quota {known} must be a whole number.")
    return known


def altered_quotas(
    entity: QuotaEntity, quotas: Quotas, alterations: Iterable[tuple[str, float | None]]
) -> dict[QuotaKey, float]:
    """The limits after an alteration; None removes one, and nothing if it is not set. Raises RequestError."""
    altered: dict[str, float] = {str(key): value for key, value in quotas.items()}
    seen = set()
    for key, value in alterations:
        if key in seen:
            raise _invalid(f"The quota {key[:100]!r} is altered twice for {entity}.")
        seen.add(key)
        if value is None:
            altered.pop(key, None)
        else:
            altered[check_quota(entity, key, value)] = value
    return {QuotaKey(key): value for key, value in altered.items()}


def quotas_to_json(entity: QuotaEntity, quotas: Quotas) -> dict[str, Any]:
    values = {str(key): int(value) if float(value).is_integer() else value for key, value in quotas.items()}
    return {"entity": {str(kind): name for kind, name in entity.parts}, "quotas": values}


def quotas_from_json(record: Any) -> tuple[QuotaEntity, dict[QuotaKey, float]]:
    """Keys that this version does not know are ignored. Raises MalformedQuota."""
    try:
        entity = QuotaEntity.of(record["entity"].items())
        values = {key: float(value) for key, value in record["quotas"].items() if key in list(QuotaKey)}
        return entity, {check_quota(entity, key, value): value for key, value in values.items()}
    except (RequestError, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise MalformedQuota(f"The metadata store has a quota that cannot be read: {error}") from error


class MatchType(IntEnum):
    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, and the default."""


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Which entities a client wants described."""

    exact: Mapping[EntityKind, str | None]
    specified: frozenset[EntityKind]
    is_strict: bool
    """Entities with kinds that the filter does not name do not match."""

    @classmethod
    def of(cls, components: Iterable[tuple[str, int, str | None]], is_strict: bool) -> "QuotaFilter":
        """Kinds, types of matches and names, as the client sent them. Raises RequestError."""
        exact: dict[EntityKind, str | None] = {}
        specified: set[EntityKind] = set()
        for text, match_type, match in components:
            kind = _kind(text, ErrorCode.UNSUPPORTED_VERSION)
            if kind in exact or kind in specified:
                raise _invalid(f"A filter of quotas names {kind} once.")
            if match_type not in list(MatchType):
                raise _invalid(f"There is no type of match {match_type}.")
            if (match_type == MatchType.EXACT) != (match is not None):
                raise _invalid("A filter of quotas has a name where the match is exact, and only there.")
            if match_type == MatchType.SPECIFIED:
                specified.add(kind)
            else:
                exact[kind] = _address(match) or match if match is not None and kind is EntityKind.IP else match
        kinds = exact.keys() | specified
        if EntityKind.IP in kinds and len(kinds) > 1:
            raise _invalid("A filter of quotas with an IP address has neither a user nor a client id.")
        return cls(exact, frozenset(specified), is_strict)

    def matches(self, entity: QuotaEntity) -> bool:
        if self.is_strict and len(entity.parts) != len(self.exact) + len(self.specified):
            return False
        names = dict(entity.parts)
        return self.specified <= names.keys() and all(
            kind in names and names[kind] == name for kind, name in self.exact.items()
        )


class Metered(NamedTuple):
    """Whose usage is counted together. None: whatever it is."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    value: float
    metered: Metered


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """All that limits one client. None: nothing does."""

    producer_byte_rate: QuotaLimit | None = None
    consumer_byte_rate: QuotaLimit | None = None
    request_percentage: QuotaLimit | None = None
    controller_mutation_rate: QuotaLimit | None = None


UNLIMITED: Final = ClientLimits()


class QuotaTable:
    """All quotas, at one moment. Nothing in it changes."""

    def __init__(self, quotas: Mapping[QuotaEntity, Quotas] | None = None) -> None:
        self._quotas = {entity: dict(values) for entity, values in (quotas or {}).items() if values}
        levels: dict[QuotaKey, _Levels] = {}
        for entity, values in self._quotas.items():
            for key, value in values.items():
                levels.setdefault(key, _Levels({}, {}, {}, {})).add(entity, value)
        self._levels = levels
        self._addresses = levels.get(QuotaKey.CONNECTION_CREATION_RATE)
        self.limits_clients = any(key in levels for key in CLIENT_KEYS)
        self.limits_addresses = self._addresses is not None

    def __len__(self) -> int:
        return len(self._quotas)

    def __iter__(self) -> Iterator[tuple[QuotaEntity, Quotas]]:
        return iter(self._quotas.items())

    def quotas(self, entity: QuotaEntity) -> Quotas:
        return self._quotas.get(entity, {})

    def limits(self, user: str, client_id: str | None) -> ClientLimits:
        """What limits a client. The same as long as the table is: to be kept with the connection."""
        if not self.limits_clients:
            return UNLIMITED
        limits = ClientLimits(*(self.limit(key, user, client_id) for key in CLIENT_KEYS))
        return UNLIMITED if limits == UNLIMITED else limits

    def limit(self, key: QuotaKey, user: str, client_id: str | None) -> QuotaLimit | None:
        levels = self._levels.get(key)
        return None if levels is None else levels.limit(user, client_id or "")

    def connection_limit(self, address: str) -> QuotaLimit | None:
        """Of the connections that an address may open per second."""
        if self._addresses is None:
            return None
        ip = _address(address) or address
        values = self._addresses.addresses
        value = values.get(ip, values.get(None))
        return None if value is None else QuotaLimit(value, Metered(ip=ip))

    def limit_of(self, key: QuotaKey, metered: Metered) -> QuotaLimit | None:
        """The limit that `metered` is measured against. None if another one, or none, counts for its clients now."""
        if metered.ip is not None:
            return self.connection_limit(metered.ip)
        limit = self.limit(key, metered.user or "", metered.client_id)
        levels = self._levels.get(key)
        if levels is None or limit is None or limit.metered == metered:
            return limit
        return levels.shared_limit(metered)

    def describe(self, filter: QuotaFilter) -> list[tuple[QuotaEntity, Quotas]]:
        """The entities that match, in an order that does not change."""
        return sorted(((each, quotas) for each, quotas in self if filter.matches(each)), key=lambda pair: pair[0].key())


@dataclass(frozen=True, slots=True)
class _Levels:
    """The limits for one key, by the kinds that an entity has. A name is None for the default."""

    pairs: dict[tuple[str | None, str | None], float]
    users: dict[str | None, float]
    clients: dict[str | None, float]
    addresses: dict[str | None, float]

    def add(self, entity: QuotaEntity, value: float) -> None:
        if EntityKind.IP in entity:
            self.addresses[entity.name(EntityKind.IP)] = value
        elif EntityKind.CLIENT_ID not in entity:
            self.users[entity.name(EntityKind.USER)] = value
        elif EntityKind.USER not in entity:
            self.clients[entity.name(EntityKind.CLIENT_ID)] = value
        else:
            self.pairs[entity.name(EntityKind.USER), entity.name(EntityKind.CLIENT_ID)] = value

    def limit(self, user: str, client_id: str) -> QuotaLimit | None:
        pairs, users, clients = self.pairs, self.users, self.clients
        for name in (user, None):
            value = pairs.get((name, client_id), pairs.get((name, None))) if pairs else None
            if value is not None:
                return QuotaLimit(value, Metered(user, client_id))
            value = users.get(name)
            if value is not None:
                return QuotaLimit(value, Metered(user))
        value = clients.get(client_id, clients.get(None))
        return None if value is None else QuotaLimit(value, Metered(client_id=client_id))

    def shared_limit(self, metered: Metered) -> QuotaLimit | None:
        """Of a user with all her client ids, or of a client id of all users."""
        names, name = (self.clients, metered.client_id) if metered.user is None else (self.users, metered.user)
        value = names.get(name, names.get(None)) if metered.user is None or metered.client_id is None else None
        return None if value is None else QuotaLimit(value, metered)


def _kind(text: str, unknown: ErrorCode) -> EntityKind:
    try:
        return EntityKind(text)
    except ValueError:
        code = unknown if text else ErrorCode.INVALID_REQUEST
        raise RequestError(code, f"There are no quotas for entities of the type {text[:100]!r}.") from None


def _checked_name(kind: EntityKind, name: object) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str):  # in a record of the metadata store
        raise _invalid(f"The name of a {kind} must be a text.")
    if not name:
        raise _invalid(f"The name of a {kind} must not be empty.")
    if len(name) > MAX_NAME_CHARS:
        raise _invalid(f"The name of a {kind} has at most {MAX_NAME_CHARS} characters in quotas.")
    if kind is not EntityKind.IP:
        return name
    address = _address(name)
    if address is None:
        raise _invalid(f"{name[:100]!r} is not an IP address.")
    return address


def _address(text: str) -> str | None:
    """One text for each address: IPv4 also where it came as IPv6, IPv6 without its zone. None if it is no address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)
