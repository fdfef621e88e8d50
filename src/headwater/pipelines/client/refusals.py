"""What brokers refuse, in words for the person who wrote the query, and which of it passes."""

from collections.abc import Iterable
from typing import Final

from headwater.client.address import BrokerAddress
from headwater.client.errors import BrokerRefused, ConnectionLost, UnusableTlsFiles
from headwater.client.retry import passes
from headwater.client.settings import TlsFiles
from headwater.client.topic_partition import TopicPartition
from headwater.model.errors import ErrorCode, error_name
from headwater.pipelines.errors import BrokerUnreachable, InvalidOption, RequestRefused, RetriableError

ALSO_RETRIED: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.BROKER_NOT_AVAILABLE})
"""Beyond what Kafka's clients retry: a broker that stops or starts may say no more than this, and a query that ends
because of it is one that a person has to start again."""
FINAL: Final = frozenset({ErrorCode.CORRUPT_MESSAGE})
"""Kafka's clients hope for another replica, or for bytes that arrive whole. A batch that is damaged where it is stored
stays so, and the query should say it at once."""


def is_passing(refused: BrokerRefused) -> bool:
    """Whether new metadata and a little time may cure it. Whether a topic exists at all is for metadata to say."""
    return passes(refused, also=ALSO_RETRIED, final=FINAL)


def check_partition(code: int, address: BrokerAddress, partition: TopicPartition) -> None:
    """Raise RetriableError or RequestRefused if it is an error."""
    if code:
        raise partition_refusal(BrokerRefused(code, None, str(partition)), address)


def partition_refusal(refused: BrokerRefused, address: BrokerAddress) -> RequestRefused:
    """The subject is a partition."""
    name = error_name(refused.code)
    if is_passing(refused):
        return RetriableError(f"Broker {address} answers {name} for {refused.subject}.")
    if refused.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return RequestRefused(f"Broker {address} does not let this client read {refused.subject}: {name}.")
    return RequestRefused(f"Broker {address} refuses to say more of {refused.subject}: {name}.")


def topic_refusal(refused: BrokerRefused) -> RequestRefused:
    """The subject is a topic, as metadata has it."""
    name = error_name(refused.code)
    if is_passing(refused):
        return RetriableError(f"{refused.subject} is not ready: {name}.")
    return RequestRefused(f"{refused.subject} cannot be read: {name}.")


def unreachable(bootstrap: Iterable[BrokerAddress], error: ConnectionLost) -> BrokerUnreachable:
    brokers = ", ".join(map(str, bootstrap))
    return BrokerUnreachable(
        f"The brokers ({brokers}) cannot be reached: {error}. Is a broker running there, and is "
        "kafka.bootstrap.servers right?"
    )


def unusable_tls_files(tls: TlsFiles | None, error: UnusableTlsFiles) -> InvalidOption:
    assert tls is not None, "files were looked for"
    files = ", ".join(filter(None, (tls.authorities, tls.certificate, tls.key)))
    return InvalidOption(f"The PEM files of the options kafka.ssl.… ({files}) cannot be used: {error}.")
