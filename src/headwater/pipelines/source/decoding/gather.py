"""Many pieces of one buffer as an Arrow array, copied by Arrow's own code.

The buffer is seen as an array whose elements are, by turns, a piece and what lies between it and the next; of these,
every other one is taken.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from headwater.model.replica import Buffer
from headwater.pipelines.source.decoding.arrays import numbers
from headwater.pipelines.source.decoding.record_index import Slices

MAX_BUFFER_BYTES: Final = 2**31 - 1
"""Arrow's binary arrays count bytes in 31 bits."""


def gather(data: Buffer, slices: Slices) -> pa.BinaryArray:
    """The pieces must follow each other in the buffer."""
    assert len(data) <= MAX_BUFFER_BYTES, "one decode stays below what an array of bytes can address"
    count = len(slices.starts)
    if not count:
        return pa.nulls(0, pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = slices.starts
    bounds[1::2] = slices.starts + np.maximum(slices.lengths, 0)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    nulls = slices.lengths < 0
    piece_indices = numbers(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32(), nulls if nulls.any() else None)
    return pieces.take(piece_indices)
