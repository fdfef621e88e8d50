"""Many varints at once: zigzag, seven bits a byte, least significant first, as records are made of."""

from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]

_BITS: Final = 7
_LOW: Final = 0x7F


def varint_sizes(values: Integers) -> Integers:
    """How many bytes each takes."""
    coded = _zigzag(values)
    sizes = np.ones(len(values), np.int64)
    largest = int(coded.max(initial=0))
    bits = _BITS
    while largest >> bits:
        sizes += coded >= np.uint64(1 << bits)
        bits += _BITS
    return sizes


def varint_rows(*fields: Integers) -> pa.BinaryArray:
    """Of each row its fields, one after another. Each field has a value for each row."""
    sizes = [varint_sizes(field) for field in fields]
    row_sizes: Integers = np.add.reduce(sizes)
    ends = np.cumsum(row_sizes)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    positions = ends - row_sizes
    for field, field_sizes in zip(fields, sizes, strict=True):
        _put(out, positions, _zigzag(field), field_sizes)
        positions = positions + field_sizes
    bounds = np.zeros(len(row_sizes) + 1, np.int32)
    bounds[1:] = ends
    return pa.Array.from_buffers(pa.binary(), len(row_sizes), [None, pa.py_buffer(bounds), pa.py_buffer(out)])


def _zigzag(values: Integers) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _put(out: NDArray[np.uint8], positions: Integers, coded: NDArray[np.uint64], sizes: Integers) -> None:
    """The first byte of every varint, then the second of those that have one, and so on."""
    left = sizes
    while len(positions):
        has_more = left > 1
        out[positions] = (coded & np.uint64(_LOW)).astype(np.uint8) | (has_more.astype(np.uint8) << _BITS)
        if not has_more.any():
            return
        positions = positions[has_more] + 1
        coded = coded[has_more] >> np.uint64(_BITS)
        left = left[has_more] - 1
