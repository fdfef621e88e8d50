"""How far queries are behind the ends of their topics, as the brokers have them now.

Spark tells the lag once for each batch, as it was when the batch was planned.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from headwater.client.offsets import EARLIEST, LATEST
from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.cluster_client import shared_cluster
from headwater.pipelines.client.config import ClientConfig
from headwater.pipelines.client.offsets import Offsets
from headwater.pipelines.errors import InvalidOption, SourceError
from headwater.pipelines.run.progress import topic_offsets
from headwater.pipelines.run.sources import ReadOptions, topic_options
from headwater.pipelines.source.options import source_options
from headwater.pipelines.spec.pipeline import Pipeline
from headwater.pipelines.spec.sources import TopicSource

TIMEOUT_MS = 1_000
"""Of one answer. The run that reports its lag must not wait long for brokers."""


class Lags:
    """Asks with the options of the pipeline's own sources. Used by one thread."""

    def __init__(self, pipeline: Pipeline, reading: ReadOptions) -> None:
        self._sources = [source.does for source in pipeline.sources if isinstance(source.does, TopicSource)]
        self._reading = reading

    def lags(self, read: Mapping[TopicPartition, int]) -> dict[str, int] | None:
        """Records of each topic that were not read yet; None if that is not known now."""
        ends = self._offsets(read, LATEST)
        if ends is None:
            return None
        found: dict[str, int] = {}
        for partition, end in ends.items():
            found[partition.topic] = found.get(partition.topic, 0) + max(0, end - read[partition])
        return found

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where their logs begin now; partitions of which that is not known are left out."""
        return self._offsets(partitions, EARLIEST) or {}

    def _offsets(self, partitions: Iterable[TopicPartition], which: int) -> Offsets | None:
        by_client: dict[ClientConfig, list[TopicPartition]] = {}
        for partition in partitions:
            client = self._client(partition.topic)
            if client is None:
                return None
            by_client.setdefault(client, []).append(partition)
        found: Offsets = {}
        try:
            for client, asked in by_client.items():
                found |= shared_cluster(client).list_offsets(dict.fromkeys(asked, which))
        except SourceError:
            return None
        return found

    def _client(self, topic: str) -> ClientConfig | None:
        """How the source that names the topic reaches its brokers."""
        for source in self._sources:
            if topic == source.topic:
                with suppress(InvalidOption):
                    client = source_options(topic_options(source, self._reading), source.stream).client
                    return replace(
                        client, connect_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS, retry_timeout_ms=0
                    )
        return None


def read_to(sources: Iterable[Mapping[str, Any]]) -> Offsets | None:
    """How far a batch went, from Spark's report of its sources; None if none of them is a topic."""
    found: Offsets = {}
    for source in sources:
        found |= topic_offsets(source.get("endOffset")) or {}
    return found or None
