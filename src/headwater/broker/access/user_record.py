"""One user as the metadata store keeps it, as JSON under users/<percent-encoded name>:

    {"scram": {"SCRAM-SHA-256": {"salt": …, "iterations": …, "stored_key": …, "server_key": …}, …},
     "generation": 3, "created_ms": …}

The keys check a password; they are no password. `generation` grows with every change: what was granted on the strength
of an earlier password ends with it. Fields that this version does not know are ignored.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from headwater.security.scram import ScramCredential, ScramMechanism
from headwater.security.strict_json import parse_object


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    credentials: Mapping[ScramMechanism, ScramCredential] = field(default_factory=dict)
    generation: int = 1
    created_ms: int = 0

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Raises ValueError."""
        try:
            plain = parse_object(data)
            known = {mechanism.sasl.value: mechanism for mechanism in ScramMechanism}
            return cls(
                credentials={
                    known[name]: ScramCredential.from_json(known[name], credential)
                    for name, credential in plain["scram"].items()
                    if name in known
                },
                generation=int(plain["generation"]),
                created_ms=int(plain["created_ms"]),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"Not the record of a user: {error!r:.200}") from error

    def to_json(self) -> bytes:
        plain = {
            "scram": {mechanism.sasl.value: each.to_json() for mechanism, each in sorted(self.credentials.items())},
            "generation": self.generation,
            "created_ms": self.created_ms,
        }
        return json.dumps(plain, separators=(",", ":")).encode()

    def altered(
        self, removed: Iterable[ScramMechanism] = (), added: Mapping[ScramMechanism, ScramCredential] | None = None
    ) -> Self:
        gone = frozenset(removed)
        kept = {mechanism: each for mechanism, each in self.credentials.items() if mechanism not in gone}
        return replace(self, credentials={**kept, **(added or {})}, generation=self.generation + 1)
