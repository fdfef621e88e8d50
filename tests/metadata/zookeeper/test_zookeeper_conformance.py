"""ZooKeeper keeps the contract that every metadata back end keeps."""

from collections.abc import Iterator

import pytest

from headwater.metadata.connect import open_metadata
from headwater.metadata.store import MetaStore
from headwater.testing.oracles.metadata_conformance import MetadataConformance
from headwater.testing.processes.zookeeper_process import ZookeeperProcess, why_missing

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperProcess]:
    with ZookeeperProcess.start(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


class TestZookeeper(MetadataConformance):
    session_ttl_s = 1.5
    patience_s = 20.0
    zookeeper: ZookeeperProcess

    @pytest.fixture(autouse=True)
    def _use_a_server(self, zookeeper: ZookeeperProcess) -> None:
        self.zookeeper = zookeeper

    async def open_store(self) -> MetaStore:
        return await open_metadata(self.zookeeper.url())
