"""Decides what clients may do: everything (`off`), what bindings allow (`on`), or everything while what bindings would
refuse is logged and counted (`observe`).

Settings that are secrets are shown to gateways alone: they sign with them. A client that was not asked who it is could
be a gateway, so it is one unless authorization is on.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from headwater.broker.access.acl_bindings import AclBindings
from headwater.broker.access.client_access import (
    UNRESTRICTED,
    UNRESTRICTED_WITHOUT_SECRETS,
    AccessRefusal,
    ClientAccess,
    GuardedAccess,
)
from headwater.broker.access.gateway_user import GATEWAY_USER
from headwater.broker.access.topic_use import CountedAccess, CountUse
from headwater.broker.settings.authorization import Authorization
from headwater.logs.events import RateLimitedLog
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.acl_words import explanation, operation_word, type_word
from headwater.security.principal import ANONYMOUS, Principal


class Authorizer:
    def __init__(
        self,
        mode: Authorization,
        bindings: AclBindings,
        events: RateLimitedLog,
        refused: Callable[[str, str], None],
        *,
        gateways: Iterable[Principal] = (),
        audit: Callable[[AccessRefusal], None] | None = None,
        count_use: CountUse | None = None,
    ) -> None:
        """`refused` counts refusals by operation and type of resource; `audit` is given each. `count_use` is for an
        audit that tells of records, too. `gateways` are shown secrets, beside the gateway in a broker's process."""
        self.mode: Final = mode
        self.bindings: Final = bindings
        self._events = events
        self._refused = refused
        self._audit = audit
        self._guarded = GuardedAccess if count_use is None else partial(CountedAccess, count_use)
        self._gateways = {Principal.user(GATEWAY_USER), *gateways}
        if mode is not Authorization.ON:
            self._gateways.add(ANONYMOUS)

    def access_of(self, principal: Principal, peer_host: str, listener: str = "") -> ClientAccess:
        shows_secrets = principal in self._gateways
        if self.mode is Authorization.OFF:
            return UNRESTRICTED if shows_secrets else UNRESTRICTED_WITHOUT_SECRETS
        return self._guarded(
            self.bindings, principal, peer_host, listener=listener, is_in_force=self.mode is Authorization.ON,
            record=self._record, shows_secrets=shows_secrets,
        )  # fmt: skip

    def check_is_on(self) -> None:
        """Raises RequestError where bindings have no meaning."""
        if self.mode is Authorization.OFF:
            raise RequestError(
                ErrorCode.SECURITY_DISABLED,
                'No Authorizer is configured. Clients are held to bindings with authorization = "on".',
            )

    def _record(self, refusal: AccessRefusal) -> None:
        operation, resource_type = operation_word(refusal.operation), type_word(refusal.resource_type)
        self._refused(operation, resource_type)
        if self._audit is not None:
            self._audit(refusal)
        self._events.log(
            "authorization_refused" if refusal.is_in_force else "authorization_would_refuse",
            principal=str(refusal.principal),
            host=refusal.host,
            api=refusal.api,
            operation=operation,
            resource_type=resource_type,
            name=refusal.name[:100],
            reason=explanation(refusal.verdict),
        )
