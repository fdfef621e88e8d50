"""The brokers that speak the Kafka protocol, by the names that their figures have."""

from collections.abc import Callable

from bench.headwater import HeadwaterServer
from bench.kafka import KafkaServer
from bench.measures import Server
from bench.report import KAFKA, OS, SYNC

SERVERS: dict[str, Callable[[], Server]] = {
    KAFKA: KafkaServer,
    OS: lambda: HeadwaterServer("os"),
    SYNC: lambda: HeadwaterServer("sync"),
}
