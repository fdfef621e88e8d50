"""The verdicts of one connection, which asks the same few things over and over.

They hold under one version of the index. The cache keeps neither the index nor its tables: idle connections would keep
as many old ones. When it is full it begins anew, and long names are not worth their room.
"""

from typing import Final

from headwater.security.access_codes import Operation, ResourceType
from headwater.security.acl_index import AclIndex
from headwater.security.acl_verdict import AclVerdict
from headwater.security.hosts import Host
from headwater.security.principal import Principal

MAX_VERDICTS: Final = 1_024
MAX_KEPT_NAME_CHARS: Final = 249
"""That of every topic."""


class VerdictCache:
    __slots__ = ("_host", "_max_verdicts", "_principal", "_verdicts", "_version")

    def __init__(self, principal: Principal, host: Host, max_verdicts: int = MAX_VERDICTS) -> None:
        self._principal = principal
        self._host = host
        self._max_verdicts = max_verdicts
        self._version = -1
        self._verdicts: dict[tuple[Operation, ResourceType, str | None], AclVerdict] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def authorize(self, index: AclIndex, operation: Operation, resource_type: ResourceType, name: str) -> AclVerdict:
        """What `index.authorize` says to the client of the connection."""
        if index.version == self._version:
            verdict = self._verdicts.get((operation, resource_type, name))
            if verdict is not None:
                return verdict
        verdict = index.authorize(self._principal, self._host, operation, resource_type, name)
        self._keep(index.version, (operation, resource_type, name), verdict)
        return verdict

    def authorize_by_type(self, index: AclIndex, operation: Operation, resource_type: ResourceType) -> AclVerdict:
        """What `index.authorize_by_type` says to the client of the connection."""
        if index.version == self._version:
            verdict = self._verdicts.get((operation, resource_type, None))
            if verdict is not None:
                return verdict
        verdict = index.authorize_by_type(self._principal, self._host, operation, resource_type)
        self._keep(index.version, (operation, resource_type, None), verdict)
        return verdict

    def _keep(self, version: int, key: tuple[Operation, ResourceType, str | None], verdict: AclVerdict) -> None:
        if version != self._version or len(self._verdicts) >= self._max_verdicts:
            self._verdicts.clear()
            self._version = version
        name = key[2]
        if name is None or len(name) <= MAX_KEPT_NAME_CHARS:
            self._verdicts[key] = verdict
