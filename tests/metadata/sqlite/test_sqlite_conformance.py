"""SQLite keeps the contract that every metadata back end keeps."""

from pathlib import Path

import pytest

from headwater.metadata.connect import open_metadata
from headwater.metadata.store import MetaStore
from headwater.testing.oracles.metadata_conformance import MetadataConformance


class TestSqlite(MetadataConformance):
    session_ttl_s = 0.4
    patience_s = 10.0
    path: Path

    @pytest.fixture(autouse=True)
    def _use_a_file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "metadata.db"

    async def open_store(self) -> MetaStore:
        return await open_metadata(f"sqlite:{self.path}")
