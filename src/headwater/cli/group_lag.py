"""How the commands show what a group has still to read."""

from collections.abc import Mapping
from typing import Any

from headwater.model.group_lag import TotalLag


def lag_fields(lag: TotalLag) -> dict[str, int | None]:
    """The fields of JSON. The lag of a group that has read nothing yet is 0."""
    is_none_read = lag.records is None and not lag.unknown_partitions
    return {"lag": 0 if is_none_read else lag.records, "unknown_partitions": lag.unknown_partitions}


def shown_lag(fields: Mapping[str, Any]) -> object:
    """The fields of JSON as people read them: a number, and how many partitions it leaves out."""
    known, unknown = fields["lag"], fields["unknown_partitions"]
    if not unknown:
        return known
    shown = "not known" if known is None else known
    return f"{shown} ({unknown} partition{'s' * (unknown != 1)} without a known position)"


def table_rows(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Rows of JSON as rows of a table, with the lag in one column."""
    return [
        tuple(shown_lag(row) if name == "lag" else value for name, value in row.items() if name != "unknown_partitions")
        for row in rows
    ]
