"""Decides what clients may do: everything (`off`), what bindings allow (`on`), or everything while what bindings would
refuse is logged and counted (`observe`)."""

from collections.abc import Callable
from functools import partial
from typing import Final

from headwater.broker.access.acl_bindings import AclBindings
from headwater.broker.access.client_access import UNRESTRICTED, AccessRefusal, ClientAccess, GuardedAccess
from headwater.broker.access.topic_use import CountedAccess, CountUse
from headwater.broker.settings.authorization import Authorization
from headwater.logs.events import RateLimitedLog
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.acl_words import explanation, operation_word, type_word
from headwater.security.principal import Principal


class Authorizer:
    def __init__(
        self,
        mode: Authorization,
        bindings: AclBindings,
        events: RateLimitedLog,
        refused: Callable[[str, str], None],
        audit: Callable[[AccessRefusal], None] | None = None,
        count_use: CountUse | None = None,
    ) -> None:
        """`refused` counts refusals by operation and type of resource; `audit` is given each. `count_use` is for an
        audit that tells of records, too."""
        self.mode: Final = mode
        self.bindings: Final = bindings
        self._events = events
        self._refused = refused
        self._audit = audit
        self._guarded = GuardedAccess if count_use is None else partial(CountedAccess, count_use)

    def access_of(self, principal: Principal, peer_host: str, listener: str = "") -> ClientAccess:
        if self.mode is Authorization.OFF:
            return UNRESTRICTED
        is_in_force = self.mode is Authorization.ON
        return self._guarded(
            self.bindings, principal, peer_host, listener=listener, is_in_force=is_in_force, record=self._record
        )

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
