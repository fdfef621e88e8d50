"""Where the logs end that a streaming query reads, asked again for every micro-batch.

New topics and partitions are looked for now and then (`kafka.metadata.max.age.ms`). What the query read up to must
still be there: a log that became shorter, a topic that is gone and one that was made again are losses, and are
reported.
"""

import time
from collections.abc import Mapping
from uuid import UUID

from headwater.client.offsets import EARLIEST, LATEST
from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.client.long_poll import LongPoll
from headwater.pipelines.client.offsets import Offsets
from headwater.pipelines.errors import UnknownTopic
from headwater.pipelines.source.data_loss import OTHER_TOPIC_ADVICE, Losses
from headwater.pipelines.source.subscription import Subscription

STALE_ANSWERS = 3
STALE_PAUSE_S = 1.0
"""A broker that just took over may know an older end than its predecessor reported, for a moment."""


class LogEnds:
    def __init__(self, cluster: ClusterClient, subscription: Subscription, losses: Losses) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._losses = losses
        self._news = LongPoll(cluster)
        self._partitions: set[TopicPartition] = set()
        self._topic_ids: dict[str, UUID] = {}
        self._looked_s: float | None = None

    def now(self, begun: Offsets) -> Offsets:
        """The end of every partition that the query reads, of which it has read up to `begun`."""
        self._look_for_partitions(begun)
        ends = self._latest()
        for _ in range(STALE_ANSWERS - 1):
            if not _shrunk(begun, ends):
                break
            time.sleep(STALE_PAUSE_S)
            ends = self._latest()
        for partition in sorted(_shrunk(begun, ends)):
            reason = f"the log ends at {ends[partition]} now, where the query goes on; was the topic made again?"
            self._losses.report(partition, begun[partition], None, reason)
        for partition in sorted(begun.keys() - ends.keys()):
            if self._subscription.names(partition.topic):
                self._losses.report(partition, begun[partition], None, "the topic or partition was deleted")
            else:
                reason = "the query that made the checkpoint read this topic, and now it does not name it"
                self._losses.report(partition, begun[partition], None, reason, OTHER_TOPIC_ADVICE)
        return ends

    def beginnings(self, partitions: set[TopicPartition]) -> Offsets:
        """Where partitions begin that are new to the query: they are read from their first record on."""
        found = self._cluster.list_offsets(dict.fromkeys(partitions, EARLIEST)) if partitions else {}
        for partition in sorted(found):
            if found[partition] > 0:
                reason = f"the partition is new to the query, and its log begins at {found[partition]} already"
                self._losses.report(partition, 0, found[partition], reason)
        return found

    def wait_for_news(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        """Return when one of the logs has probably grown, or after the time."""
        self._news.wait(ends, timeout_ms)

    def close(self) -> None:
        self._news.close()

    def _latest(self) -> Offsets:
        try:
            return self._ask_latest()
        except UnknownTopic:  # deleted since we looked
            self._partitions = self._subscription.find(self._cluster, must_exist=False)
            return self._ask_latest()

    def _ask_latest(self) -> Offsets:
        return self._cluster.list_offsets(dict.fromkeys(self._partitions, LATEST)) if self._partitions else {}

    def _look_for_partitions(self, begun: Offsets) -> None:
        now_s = time.monotonic()
        if self._looked_s is not None and now_s - self._looked_s < self._cluster.config.metadata_age_ms / 1000:
            return
        self._looked_s = now_s
        self._partitions = self._subscription.find(self._cluster, must_exist=False)
        for topic in sorted({partition.topic for partition in self._partitions}):
            topic_id = self._cluster.topic_id(topic)
            if topic_id is not None and self._topic_ids.setdefault(topic, topic_id) != topic_id:
                self._topic_ids[topic] = topic_id
                for partition in sorted(partition for partition in begun if partition.topic == topic):
                    self._losses.report(partition, begun[partition], None, "the topic was deleted and made again")


def _shrunk(begun: Offsets, ends: Offsets) -> list[TopicPartition]:
    return [partition for partition, end in ends.items() if end < begun.get(partition, 0)]
