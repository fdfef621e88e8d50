"""etcd keeps the contract that every metadata back end keeps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.metadata.connect import open_metadata
from headwater.metadata.store import MetaStore
from headwater.testing.oracles.metadata_conformance import MetadataConformance
from headwater.testing.processes.etcd_process import EtcdProcess, find_etcd

pytestmark = pytest.mark.skipif(find_etcd() is None, reason="etcd is not installed (Debian: etcd-server)")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    directory: Path = tmp_path_factory.mktemp("etcd")
    with EtcdProcess.start(directory) as etcd:
        yield etcd


class TestEtcd(MetadataConformance):
    etcd: EtcdProcess

    @pytest.fixture(autouse=True)
    def _use_one_member(self, etcd: EtcdProcess) -> None:
        self.etcd = etcd

    async def open_store(self) -> MetaStore:
        return await open_metadata(self.etcd.url())
