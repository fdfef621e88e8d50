"""How the commands reach a broker: as Kafka clients, with failures turned into advice.

There are two: librdkafka's AdminClient, and our own client for requests that it has no call for. Both are imported
inside functions: help and `headwater serve` start without them.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from headwater.cli.bootstrap import addresses, check_brokers, no_broker, not_logged_in, unusable_tls_files
from headwater.cli.brokers import REQUEST_TIMEOUT_S, Brokers
from headwater.cli.output import CommandFailed, say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient, TopicMetadata

    from headwater.client.blocking_cluster import BlockingCluster
    from headwater.client.errors import ClientError

NOT_ALLOWED = (29, 30, 31, 53)
"""TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def client_config(brokers: Brokers, **more: Any) -> dict[str, Any]:
    """Of any confluent-kafka client. Raises CommandFailed if no broker lets the client in."""
    check_brokers(brokers)
    quiet = {"log_level": 0, "client.id": brokers.client_id, "error_cb": _ignore}
    return {"bootstrap.servers": brokers.bootstrap, **brokers.security_options(), **quiet, **more}


@contextmanager
def admin(brokers: Brokers) -> "Iterator[AdminClient]":
    """librdkafka's client. Raises CommandFailed for what it fails with."""
    from confluent_kafka.admin import AdminClient

    config = client_config(brokers)
    with kafka_problems(brokers):
        yield AdminClient(config)


@contextmanager
def cluster(brokers: Brokers) -> "Iterator[BlockingCluster]":
    """Our own client. Raises CommandFailed for what it fails with."""
    check_brokers(brokers)
    with client_problems(brokers), closing(_open_cluster(brokers)) as opened:
        yield opened


@contextmanager
def clients(brokers: Brokers) -> "Iterator[Clients]":
    with admin(brokers) as client, client_problems(brokers), closing(_open_cluster(brokers)) as opened:
        yield Clients(client, opened)


class Clients(NamedTuple):
    """For commands that need both."""

    admin: "AdminClient"
    cluster: "BlockingCluster"


@contextmanager
def kafka_problems(brokers: Brokers) -> Iterator[None]:
    """Raise a KafkaException of a client as CommandFailed."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise explain(error.args[0], brokers) from error


@contextmanager
def client_problems(brokers: Brokers) -> Iterator[None]:
    """Raise an error of our own client as CommandFailed."""
    from headwater.client.errors import ClientError

    try:
        yield
    except ClientError as error:
        raise explain_refusal(error, brokers) from error


def topic_metadata(client: Any, topic: str, brokers: Brokers) -> "TopicMetadata":
    """Of an existing topic; asking does not create it. Raises CommandFailed."""
    from confluent_kafka import KafkaError

    # The list of all topics: a request that names a topic may create it.
    topics = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    if topic not in topics:
        raise explain(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), brokers, topic=topic)
    metadata: TopicMetadata = topics[topic]
    return metadata


def explain(
    error: "KafkaError", brokers: Brokers, *, topic: str = "", group: str = "", partition: int | None = None
) -> CommandFailed:
    """A Kafka error as a message for the person who typed the command."""
    from confluent_kafka import KafkaError

    code = error.code()
    subject = f"Topic {topic}" if topic else f"Group {group}" if group else "It"
    if code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
        return no_broker(brokers.bootstrap)
    if code in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError._MSG_TIMED_OUT):
        return CommandFailed(
            f"The server at {brokers} did not answer in time.", "Is it a Kafka broker, and can it write to its disk?"
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return CommandFailed(
            f"{subject} does not exist.",
            "`headwater topic list` shows the existing topics; `headwater topic create` makes one.",
        )
    if code == KafkaError._UNKNOWN_PARTITION:
        return CommandFailed(
            f"{subject} has no partition {partition}." if partition is not None else f"{subject} lacks a partition.",
            f"`headwater topic describe {topic or 'TOPIC'}` shows its partitions.",
        )
    if code == KafkaError.TOPIC_EXCEPTION and topic:
        return _bad_name(error, topic)
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return CommandFailed(f"{subject} exists already.", "Change it with `headwater topic alter`.")
    if code == KafkaError.INCONSISTENT_GROUP_PROTOCOL and group:
        return CommandFailed(
            f"Group {group} is of another kind, or its members share out partitions in another way.",
            "`headwater group list` shows its type; `headwater queue` is for groups of type share.",
        )
    if code == KafkaError.GROUP_ID_NOT_FOUND:
        return CommandFailed(f"{subject} does not exist.", "`headwater group list` shows the existing groups.")
    if code in NOT_ALLOWED:
        return not_allowed(subject if topic or group else "", error.name(), brokers)
    if code in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
        return CommandFailed(f"{subject} has members that are running.", "Stop them first.")
    reason = error.str() or error.name()
    return CommandFailed(f"{subject + ': ' if topic or group else ''}{reason.rstrip('.')} ({error.name()}).")


def explain_refusal(error: "ClientError", brokers: Brokers) -> CommandFailed:
    """What happened to a request of our own, and what to do."""
    from headwater.client.errors import BrokerRefused, CoordinatorUnknown, NotLoggedIn, UnusableTlsFiles
    from headwater.model.errors import ErrorCode, error_name

    if isinstance(error, NotLoggedIn):
        return not_logged_in(error, brokers)
    if isinstance(error, UnusableTlsFiles):
        return unusable_tls_files(error, brokers)
    if not isinstance(error, BrokerRefused):
        return CommandFailed(f"The broker does not answer: {error}.", "Is it older than this command?")
    code, subject = error.code, error.subject
    if isinstance(error, CoordinatorUnknown):
        return CommandFailed(f"{subject} is not known now (error {code}).", "Try it again.")
    if code in NOT_ALLOWED:
        return not_allowed((error.reason or subject).rstrip("."), error_name(code), brokers)
    if code == ErrorCode.NON_EMPTY_GROUP:
        return CommandFailed(f"{subject} has members that are running.", "Stop them first.")
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return CommandFailed(f"{subject} does not exist.", "`headwater group list` shows the existing groups.")
    if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return CommandFailed(f"{subject} does not exist.", "`headwater transaction list` shows the existing ids.")
    if code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        return CommandFailed(f"{subject} has no coordinator now.", "Try it again.")
    if error.reason:
        return CommandFailed(f"{error}.")
    return CommandFailed(f"{subject}: the broker answers {error_name(code)}.")


def not_allowed(what: str, code: str, brokers: Brokers) -> CommandFailed:
    """The brokers know the user, who may not do this."""
    sasl = brokers.security.sasl if brokers.security is not None else None
    who = sasl.user if sasl is not None else "This client"
    return CommandFailed(
        f"{what + ': ' if what else ''}{who} may not do that ({code}).",
        "An administrator sees why, and the command that would allow it, with `headwater acl explain --recent` or "
        "`headwater acl test`.",
    )


def say_deleted(noun: str, futures: "Mapping[str, Future[Any]]", brokers: Brokers) -> None:
    """Say of each topic or group that it was deleted. Raises CommandFailed for the first that was not."""
    from confluent_kafka import KafkaException

    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            names = {noun: name}
            raise explain(error.args[0], brokers, topic=names.get("topic", ""), group=names.get("group", "")) from error
        say(f"Deleted {noun} {name}.")


def _bad_name(error: "KafkaError", topic: str) -> CommandFailed:
    """Says what is wrong with a topic's name: the error of a produce, unlike that of a creation, does not."""
    from headwater.broker.settings.topic_name import check_topic_name
    from headwater.model.errors import RequestError

    try:
        check_topic_name(topic)
    except RequestError as refused:
        return CommandFailed(str(refused), "`headwater topic list` shows the names there are.")
    return CommandFailed(
        f"Topic {topic}: {error.str().rstrip('.')}.", "`headwater topic list` shows the names there are."
    )


def parse_assignments(pairs: list[str], option: str) -> dict[str, str]:
    """The `name=value` arguments of a repeatable option."""
    parsed = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise CommandFailed(f"{option} {pair!r} is not of the form NAME=VALUE.", exit_code=2)
        parsed[name] = value
    return parsed


def _open_cluster(brokers: Brokers) -> "BlockingCluster":
    from headwater.client.blocking_cluster import BlockingCluster

    return BlockingCluster(addresses(brokers.bootstrap), brokers.settings())


def _ignore(_: object) -> None:
    """librdkafka reports errors of single connections here and retries; the call that fails in the end raises."""
