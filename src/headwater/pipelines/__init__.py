"""Topics in Spark: `register(spark)`, then `spark.readStream.format("headwater")`; `from_schema` decodes values.

What needs Spark is imported when it is asked for: pipelines are checked without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.pipelines.data_source import HeadwaterDataSource, register
    from headwater.pipelines.values.from_schema import from_schema

__all__ = ["HeadwaterDataSource", "from_schema", "register"]

_HOMES = {"HeadwaterDataSource": "data_source", "from_schema": "values.from_schema", "register": "data_source"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
