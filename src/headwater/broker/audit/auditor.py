"""What the parts of a broker tell the audit: logins, refusals, changes by administrators, start and stop.

Telling costs a look into a table and never waits. There is no Auditor where the audit is off.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.access.client_access import AccessRefusal
from headwater.broker.access.login_outcome import LoginOutcome
from headwater.broker.access.topic_use import TopicUse, UseCount
from headwater.broker.audit.audit_event import AuditEvent, AuditKind, AuditVerdict
from headwater.broker.audit.management import MANAGED, TOPIC, ManagedChange
from headwater.broker.audit.pending_events import PendingEvents
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.model.moment import moment
from headwater.security.acl_words import explanation, operation_word, type_word
from headwater.security.principal import Principal

if TYPE_CHECKING:
    from headwater.broker.api import RequestContext

MAX_USES: Final = 10_000
"""Topics that clients use, each counted by itself."""
USES_EVERY_S: Final = 60.0
_OTHER_USES: Final = AuditEvent(kind=AuditKind.DATA, verdict=AuditVerdict.ALLOWED, is_others=True)


class Auditor:
    def __init__(self, node: int, clock: Clock, excluded: Iterable[Principal] = ()) -> None:
        """Of what the `excluded` principals do there are no events. A login that fails may be anybody's."""
        self.pending: Final = PendingEvents(node)
        self.clock: Final = clock
        self.wake: Final = asyncio.Event()
        """Set when something is to be written at once."""
        self._excluded = frozenset(map(str, excluded))
        self._uses: dict[TopicUse, UseCount] = {}
        self._other_uses = UseCount()
        self._uses_due_s = 0.0

    def login(self, outcome: LoginOutcome) -> None:
        self._offer(
            AuditEvent(
                kind=AuditKind.AUTHENTICATION,
                verdict=AuditVerdict.ALLOWED if outcome.is_let_in else AuditVerdict.FAILED,
                listener=outcome.listener,
                address=outcome.address,
                principal=outcome.principal,
                mechanism=outcome.mechanism,
                rule=outcome.reason,
            )
        )

    def refusal(self, refusal: AccessRefusal) -> None:
        self._offer(
            AuditEvent(
                kind=AuditKind.AUTHORIZATION,
                verdict=AuditVerdict.REFUSED if refusal.is_in_force else AuditVerdict.WOULD_REFUSE,
                operation=operation_word(refusal.operation),
                listener=refusal.listener,
                address=refusal.host,
                principal=str(refusal.principal),
                api=refusal.api,
                resource_type=type_word(refusal.resource_type),
                name=refusal.name,
                rule=explanation(refusal.verdict),
                client_id=refusal.client_id,
            )
        )

    def count_use(self, use: TopicUse) -> UseCount:
        """The count of how often a client uses a topic, told once a minute. All that are too many have one."""
        count = self._uses.get(use)
        if count is None:
            if len(self._uses) >= MAX_USES:
                return self._other_uses
            count = self._uses[use] = UseCount()
            self.wake.set()
        return count

    @property
    def has_uses(self) -> bool:
        return bool(self._uses)

    def tell_uses(self, *, is_last: bool = False) -> None:
        """Of the last minute, if it is over."""
        now_s = self.clock.monotonic()
        if not self._uses or (now_s < self._uses_due_s and not is_last):
            return
        self._uses_due_s = now_s + USES_EVERY_S
        for use, count in list(self._uses.items()):
            if not count.requests:
                count.is_live = False
                del self._uses[use]
                continue
            self._offer(_used(use), count.requests)
            count.requests = 0
        if self._other_uses.requests:
            self._offer(_OTHER_USES, self._other_uses.requests)
            self._other_uses.requests = 0

    def changes_of(self, api_key: int) -> Callable[[Any, Any], Iterable[ManagedChange]] | None:
        """None for an API that changes nothing for administrators."""
        return MANAGED.get(api_key)

    def management(
        self,
        api: str,
        context: "RequestContext",
        changes: Callable[[Any, Any], Iterable[ManagedChange]],
        request: object,
        response: object,
    ) -> None:
        """A request was carried out, or some of it. Its response leaves, whatever becomes of this."""
        try:
            for change in changes(request, response):
                self._managed(api, context, change)
        except Exception as error:
            log_event("audit_failed", logging.ERROR, error, api=api, error=error)

    def created_on_use(self, context: "RequestContext", topic: str) -> None:
        change = ManagedChange(operation="create", resource_type=TOPIC, name=topic, changes=("on use",))
        self._managed("Metadata", context, change)

    def node(self, operation: str) -> None:
        """This node has `start`ed, or is about to `stop`."""
        self._offer(AuditEvent(kind=AuditKind.NODE, verdict=AuditVerdict.DONE, operation=operation))

    def _managed(self, api: str, context: "RequestContext", change: ManagedChange) -> None:
        self._offer(
            AuditEvent(
                kind=AuditKind.MANAGEMENT,
                verdict=AuditVerdict.DONE,
                operation=change.operation,
                listener=context.listener,
                address=context.connection.peer_host,
                principal=str(context.connection.principal),
                api=api,
                resource_type=change.resource_type,
                name=change.name,
                pattern=change.pattern,
                client_id=context.client_id,
                changes=change.changes,
            )
        )

    def _offer(self, event: AuditEvent, count: int = 1) -> None:
        is_claim = event.kind is AuditKind.AUTHENTICATION and event.verdict is AuditVerdict.FAILED
        if event.principal in self._excluded and not is_claim:
            return
        self.pending.offer(event, moment(self.clock), count)
        if self.pending.is_urgent:
            self.wake.set()


def _used(use: TopicUse) -> AuditEvent:
    return AuditEvent(
        kind=AuditKind.DATA, verdict=AuditVerdict.ALLOWED, operation=use.operation, listener=use.listener,
        address=use.host, principal=use.principal, api=use.api, resource_type=TOPIC, name=use.topic,
    )  # fmt: skip
