"""What a node that joins knows of topics that others create and delete while it starts."""

from pathlib import Path
from unittest.mock import patch

from headwater.broker.cluster import member, membership
from headwater.broker.cluster.watch import ClusterWatch
from headwater.broker.topics.catalog import Catalog
from headwater.metadata.store import MetaStore
from tests.broker.queues.share_members import on_loop
from tests.broker.two_nodes import start_node
from tests.support.eventually import until


@on_loop
async def test_topics_that_come_and_go_while_a_node_loads_its_catalog_are_followed(tmp_path: Path) -> None:
    one = await start_node(tmp_path, 1)
    watches: list[ClusterWatch] = []
    load = Catalog.load

    def watched(metadata: MetaStore) -> ClusterWatch:
        watches.append(ClusterWatch(metadata))
        return watches[-1]

    async def load_while_topics_change(catalog: Catalog, *, is_alone: bool) -> None:
        await load(catalog, is_alone=is_alone)
        deleted = catalog.topic("old").topic_id
        await one.catalog.changes.delete(one.catalog.topic("old"))
        await one.catalog.changes.create("new", 1, {})
        await until(lambda: deleted not in watches[-1].topics_read.items, "the watch has seen the deletion")

    try:
        await one.catalog.changes.create("old", 1, {})
        changing = patch.object(Catalog, "load", load_while_topics_change)
        with changing, patch.object(membership, "ClusterWatch", watched):
            two = await start_node(tmp_path, 2)
        try:
            assert two.catalog.find("old") is None
            await until(lambda: two.catalog.find("new") is not None, "the new topic is known")
        finally:
            with patch.object(member, "HANDOVER_S", 0.1):  # what this node leads is not needed any more
                await two.stop()
    finally:
        await one.stop()
