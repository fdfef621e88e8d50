"""`headwater audit` and `headwater acl explain --recent`: what people find there, and what they do then."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.broker.audit.audit_event import AuditKind, AuditVerdict
from headwater.client.admin.acls import list_bindings
from headwater.client.errors import BrokerRefused
from headwater.model.cluster import AUDIT_TOPIC
from headwater.security.acl_filter import AclFilter
from headwater.testing import Broker
from headwater.wire.typed.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from tests.support.audited import audited, client_of

NOT_ALLOWED = 30
"""GROUP_AUTHORIZATION_FAILED."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True, users=["alice", "bob", "carol"]) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker, cli_at: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HEADWATER_CLIENT", str(broker.client_file("admin")))
    return cli_at(broker.bootstrap)


def read_with(broker: Broker, user: str, group: str) -> int:
    """The error code of a request that reads with this group."""
    with client_of(broker, user) as client:
        answer = client.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[]))
        return answer.error_code


def refused(broker: Broker, user: str, group: str) -> None:
    """As soon as it is in the audit."""
    assert read_with(broker, user, group) == NOT_ALLOWED
    audited(
        broker,
        AuditKind.AUTHORIZATION,
        AuditVerdict.REFUSED,
        lambda each: (each.event.principal, each.event.name) == (f"User:{user}", group),
    )


def explained(text: str, subject: str) -> list[str]:
    """The lines below the one that names the subject."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if subject in line)
    rest = lines[first + 1 :]
    return [line.strip() for line in rest[: next((n for n, each in enumerate(rest) if each[:1] != " "), len(rest))]]


@pytest.mark.parametrize("group", ["packers", "with space", "-dash", "qu'ote"])
def test_the_command_that_is_printed_allows_what_was_refused(broker: Broker, admin: Any, group: str) -> None:
    refused(broker, "alice", group)
    why, command = explained(admin.ok("acl", "explain", "--recent", "--of", "alice"), repr(group))
    assert why == "denied: the resource has no bindings"
    headwater, *words = shlex.split(command)
    assert headwater == "headwater" and words[:2] == ["acl", "allow"]
    admin.ok(*words)
    assert read_with(broker, "alice", group) != NOT_ALLOWED
    (now,) = explained(admin.ok("acl", "explain", "--recent"), repr(group))
    assert now == f"now allowed: User:alice may read group {group!r} (from any address)"


def test_a_denial_is_explained_by_what_denies(broker: Broker, admin: Any) -> None:
    admin.ok("acl", "deny", "bob", "read", "group", "secret", "--prefix")
    refused(broker, "bob", "secret-group")
    why, advice = explained(admin.ok("acl", "explain", "--recent", "--of", "bob"), "'secret-group'")
    assert why == "denied: User:bob may not read groups that begin with 'secret' (from any address)"
    assert "remove --denial" in advice


def test_a_name_that_would_allow_more_has_no_command(broker: Broker, admin: Any) -> None:
    refused(broker, "bob", "*")
    assert "No command" in explained(admin.ok("acl", "explain", "--recent"), "'*'")[-1]


def test_recent_is_asked_for_in_other_words(admin: Any) -> None:
    for words in (["alice"], [], ["alice", "read", "topic", "t", "--of", "bob"], ["alice", "--recent"]):
        result = admin("acl", "explain", *words)
        assert result.exit_code == 2, words
    assert "Nothing was refused" in admin("acl", "explain", "--recent", "--of", "never-seen").output


def test_events_are_tables_for_people_and_lines_for_machines(broker: Broker, admin: Any) -> None:
    refused(broker, "bob", "shown")
    refused(broker, "bob", "\x1b[31mred")
    head, *lines = admin.ok("audit", "tail", "--denied", "--of", "bob").splitlines()
    assert head.split() == ["TIME", "VERDICT", "WHO", "FROM", "WHAT", "ON", "WHY", "TIMES"]
    (line,) = (each for each in lines if "group shown" in each)
    assert (
        "refused  User:bob  127.0.0.1  authorization: read" in line and "denied: the resource has no bindings" in line
    )
    assert "\x1b" not in "".join(lines) and "\\x1b[31mred" in "".join(lines)
    events = [json.loads(each) for each in admin.ok("audit", "tail", "--on", "group", "shown", "--json").splitlines()]
    assert {(each["principal"], each["name"], each["verdict"]) for each in events} == {("User:bob", "shown", "refused")}
    kinds = {json.loads(each)["kind"] for each in admin.ok("audit", "tail", "--json").splitlines()}
    assert kinds >= {"node", "authentication", "authorization"}
    assert admin("audit", "tail", "--since", "soon").exit_code == 2


def test_users_read_the_audit_if_a_binding_names_it(broker: Broker, admin: Any) -> None:
    """Neither a wildcard nor a prefix does, for the broker and for `acl test` alike."""
    audited(broker, AuditKind.NODE, AuditVerdict.DONE)
    admin.ok("acl", "allow", "carol", "all", "topic", "*")
    admin.ok("acl", "allow", "carol", "all", "topic", "__headwater", "--prefix")
    tested = admin("acl", "test", "carol", "read", "topic", AUDIT_TOPIC)
    assert tested.exit_code == 1 and f"headwater acl allow carol read topic {AUDIT_TOPIC}" in tested.stdout
    admin.ok("acl", "allow", "carol", "read", "topic", AUDIT_TOPIC)
    assert admin("acl", "test", "carol", "read", "topic", AUDIT_TOPIC).exit_code == 0


def test_where_there_is_no_audit_it_is_said(cli: Any) -> None:
    result = cli("audit", "tail")
    assert result.exit_code == 1 and 'audit = "on"' in result.output


def test_a_user_without_rights_is_told_what_is_missing(broker: Broker) -> None:
    with (
        client_of(broker, "bob") as client,
        pytest.raises(BrokerRefused, match="bob may not describe the cluster"),
    ):
        client.answer(list_bindings(AclFilter()))


def test_following_shows_what_happens_meanwhile(broker: Broker) -> None:
    command = [sys.executable, "-m", "headwater.cli.main", "audit", "tail", "--follow", "--json", "--since", "1s"]
    command += ["--client", str(broker.client_file("admin"))]
    audited(broker, AuditKind.NODE, AuditVerdict.DONE)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout is not None
            refused(broker, "bob", "followed")
            line = next(each for each in following.stdout if '"followed"' in each)
            assert json.loads(line)["principal"] == "User:bob"
            following.send_signal(signal.SIGINT)
            assert following.wait(60) == 0
        finally:
            following.kill()
