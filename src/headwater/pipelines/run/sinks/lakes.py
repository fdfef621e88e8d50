"""Rows into tables of Delta Lake and Iceberg, through their Python packages, each batch once.

The batch's number is part of the commit: a batch that is repeated finds itself, and adds nothing. Each batch passes
through the driver's memory; `max_records` of the sources bounds it.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.pipelines.run.problems import PipelineFailed
from headwater.pipelines.spec.sinks import DeltaSink, IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH = "headwater.batch"
QUERY = "headwater.query"
MAX_SNAPSHOTS = 1_000
"""How far back a batch is looked for. A repeated batch is the last of its query."""


def to_delta(sink: DeltaSink, path: str, query_id: Callable[[], str]) -> "Callable[[DataFrame, int], None]":
    deltalake = _package("deltalake", "Delta Lake")

    def write(batch: "DataFrame", batch_id: int) -> None:
        query, storage = query_id(), dict(sink.options) or None
        if deltalake.DeltaTable.is_deltatable(path, storage):
            written = deltalake.DeltaTable(path, storage_options=storage).transaction_version(query)
            if written is not None and written >= batch_id:
                return
        transaction = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(query, batch_id)])
        deltalake.write_deltalake(
            path,
            batch.toArrow(),
            mode="append",
            partition_by=list(sink.partition_by) or None,
            storage_options=storage,
            commit_properties=transaction,
        )

    return write


def to_iceberg(sink: IcebergSink, query_id: Callable[[], str]) -> "Callable[[DataFrame, int], None]":
    catalogs = _package("pyiceberg.catalog", "Iceberg")

    def write(batch: "DataFrame", batch_id: int) -> None:
        catalog = catalogs.load_catalog(sink.catalog.get("name", "default"), **sink.catalog)
        rows = batch.toArrow()
        table = catalog.create_table_if_not_exists(sink.table, schema=rows.schema)
        if not _has_batch(table, query_id(), batch_id):
            table.append(rows, snapshot_properties={QUERY: query_id(), BATCH: str(batch_id)})

    return write


def _has_batch(table: Any, query: str, batch_id: int) -> bool:
    for snapshot in table.metadata.snapshots[-MAX_SNAPSHOTS:]:
        summary = snapshot.summary
        if summary is not None and summary.get(QUERY) == query and int(summary.get(BATCH, "-1")) >= batch_id:
            return True
    return False


def _package(module: str, what: str) -> Any:
    name = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError:
        raise PipelineFailed(
            f"Writing to {what} needs the package {name}.", f"Install it with `pip install {name}`."
        ) from None
