"""`headwater acl explain --recent`: what was refused in the last hour, why, and the command that would allow each.

The audit says what was refused; what decides about it now, the bindings of now say: something may have been allowed
meanwhile, and a denial is not overruled by allowing more.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.broker.access.client_access import ANY_RESOURCE
from headwater.broker.audit.audit_event import CUT, AuditKind, AuditRecord, AuditVerdict, time_text
from headwater.cli.acl_grant import OPERATIONS, TYPES
from headwater.cli.acl_requests import index_of, matching
from headwater.cli.brokers import Brokers
from headwater.cli.client import cluster
from headwater.cli.output import note, say, shown
from headwater.security.access_codes import Operation, PatternType, ResourceType
from headwater.security.acl_filter import AclFilter
from headwater.security.acl_words import allowing_command, explanation, refusal
from headwater.security.hosts import host_of
from headwater.security.principal import MalformedPrincipal, Principal

if TYPE_CHECKING:
    from headwater.client.blocking_cluster import BlockingCluster
    from headwater.security.acl_verdict import AclVerdict

RECENT_MS: Final = 3_600_000
MAX_EXPLAINED: Final = 100
"""The latest. Each is asked about."""


@dataclass(frozen=True, slots=True)
class RefusedOperation:
    """One thing that was refused, however often."""

    principal: Principal
    address: str
    operation: Operation
    resource_type: ResourceType
    name: str


def explain_recent(brokers: Brokers, only: Principal | None) -> None:
    from headwater.cli.audit_reading import AuditReader

    with cluster(brokers) as client:
        since_ms = time.time_ns() // 1_000_000 - RECENT_MS
        records = [each for each in AuditReader(client, since_ms).to_end() if _is_refusal(each, only)]
        latest = _latest(records)
        if not latest:
            note("Nothing was refused in the last hour.")
        elif len(latest) > MAX_EXPLAINED:
            note(f"{len(latest)} things were refused; these are the latest {MAX_EXPLAINED}.")
        for refused, count, record in latest[-MAX_EXPLAINED:]:
            _explain(client, refused, count, record)
    others = sum(each.count for each in records if each.event.is_others)
    if others:
        note(f"{others} more were refused to clients that were refused too many things to tell them apart.")


def _is_refusal(record: AuditRecord, only: Principal | None) -> bool:
    event = record.event
    is_refused = event.verdict in (AuditVerdict.REFUSED, AuditVerdict.WOULD_REFUSE)
    return event.kind is AuditKind.AUTHORIZATION and is_refused and (only is None or event.principal == str(only))


def _latest(records: Iterable[AuditRecord]) -> list[tuple[RefusedOperation, int, AuditRecord]]:
    """Each thing once, with how often it was refused and its latest record; the latest comes last."""
    by_thing: dict[RefusedOperation, tuple[int, AuditRecord]] = {}
    for record in records:
        refused = _refused(record)
        if refused is not None:
            count, _ = by_thing.pop(refused, (0, record))
            by_thing[refused] = count + record.count, record
    return [(refused, count, record) for refused, (count, record) in by_thing.items()]


def _refused(record: AuditRecord) -> RefusedOperation | None:
    """None if this version does not know the operation, or things were not told apart."""
    event = record.event
    operation, resource_type = OPERATIONS.get(event.operation), TYPES.get(event.resource_type)
    if operation is None or resource_type is None:
        return None
    try:
        principal = Principal.parse(event.principal)
    except MalformedPrincipal:
        return None
    return RefusedOperation(principal, event.address, operation, resource_type, event.name)


def _explain(client: "BlockingCluster", refused: RefusedOperation, count: int, record: AuditRecord) -> None:
    times = "" if count == 1 else f", {count} times"
    word = ", in observe mode" if record.event.verdict is AuditVerdict.WOULD_REFUSE else ""
    sentence = refusal(refused.principal, refused.operation, refused.resource_type, refused.name).rstrip(".")
    where = f"{record.event.api} from {refused.address}{times}{word}"
    say(f"{time_text(record.until_ms)}  {shown(sentence)} ({shown(where)})")
    if refused.name == ANY_RESOURCE:
        say("  Any one of them would do: allow the user the one that is meant.")
        return
    if CUT in (refused.name[-1:], refused.principal.name[-1:]):
        say("  The audit has only the beginning of a name that is so long.")
        return
    verdict = _verdict_now(client, refused)
    if verdict:
        say(f"  now {explanation(verdict)}")
        return
    say(f"  {explanation(verdict)}")
    if verdict.binding is not None:
        say("  A denial wins over all that allows: `headwater acl remove --denial` takes it back.")
        return
    command = allowing_command(refused.principal, refused.operation, refused.resource_type, refused.name)
    say(f"  {command}" if command is not None else "  No command names it safely: it would allow more than is shown.")


def _verdict_now(client: "BlockingCluster", refused: RefusedOperation) -> "AclVerdict":
    about = AclFilter(resource_type=refused.resource_type, pattern_type=PatternType.MATCH, name=refused.name)
    index, _ = index_of(client, matching(client, about))
    return index.authorize(
        refused.principal, host_of(refused.address), refused.operation, refused.resource_type, refused.name
    )
