"""Arrow arrays on the memory of NumPy arrays.

`pyarrow.array` would do, too, but on its first use it loads pandas where that is installed, as it is with PySpark: a
quarter of a second and 50 MB in every Python process of Spark.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def numbers(values: NDArray[Any], type_: pa.DataType, is_null: NDArray[np.bool_] | None = None) -> pa.Array:
    """Without a copy. `type_` is as wide as the values."""
    assert values.itemsize * 8 == type_.bit_width, "the values are what the type says"
    validity = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(type_, len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def repeated(text: str, count: int) -> pa.StringArray:
    """The same text `count` times."""
    data = text.encode()
    bounds = np.array([0, len(data)], np.int32)
    once = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return once.take(numbers(np.zeros(count, np.int32), pa.int32()))
