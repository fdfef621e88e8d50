"""The audit of a broker with logins, read as its administrator does, and clients of our own that log in there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.broker.audit.audit_event import AuditKind, AuditRecord, AuditVerdict
from headwater.cli.audit_reading import AuditReader
from headwater.cli.brokers import brokers_of
from headwater.cli.client import cluster
from headwater.client.blocking_cluster import BlockingCluster
from headwater.model.cluster import AUDIT_TOPIC
from headwater.testing import Broker
from tests.support.eventually import eventually


@contextmanager
def client_of(broker: Broker, user: str) -> Iterator[BlockingCluster]:
    with cluster(brokers_of(None, str(broker.client_file(user)))) as client:
        yield client


def has_audit(broker: Broker) -> bool:
    """Whether its first event was written."""
    with client_of(broker, "admin") as client:
        return AUDIT_TOPIC in client.topics([AUDIT_TOPIC])


def audit_of(broker: Broker) -> list[AuditRecord]:
    with client_of(broker, "admin") as client:
        return [*AuditReader(client, 0).to_end()]


def audited(
    broker: Broker, kind: AuditKind, verdict: AuditVerdict, takes: Callable[[AuditRecord], bool] = lambda record: True
) -> list[AuditRecord]:
    """The records of a kind and verdict that a test asks for, as soon as there is one."""

    def look() -> list[AuditRecord]:
        if not has_audit(broker):
            return []
        records = [each for each in audit_of(broker) if each.event.kind is kind and each.event.verdict is verdict]
        return [each for each in records if takes(each)]

    return eventually(look, f"an event of {kind}: {verdict}")
