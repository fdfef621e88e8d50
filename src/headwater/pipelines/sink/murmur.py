"""The hash by which Kafka's clients choose a key's partition (murmur2 of Java's client), of many keys at once.

Keys are hashed side by side, four bytes of each at a time. When only a few long keys are left, they are finished one
by one: a step over a handful of keys costs as much as over hundreds.
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_WORD: Final = 4
_PADDING: Final = bytes(_WORD)
FEW_KEYS: Final = 64


def key_hashes(keys: pa.BinaryArray) -> NDArray[np.int64]:
    """Of each key its hash, made positive: modulo the number of partitions it is the partition. A null has that of an
    empty key."""
    count = len(keys)
    bounds = np.frombuffer(keys.buffers()[1], np.int32, count + 1, keys.offset * _WORD).astype(np.int64)
    starts = bounds[:-1]
    lengths = np.diff(bounds)
    buffer = keys.buffers()[2]
    data = np.frombuffer((buffer.to_pybytes() if buffer is not None else b"") + _PADDING, np.uint8)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    hashes = _mix_words(hashes, data, starts, lengths // _WORD)
    hashes = _mix_tails(hashes, data, starts + lengths // _WORD * _WORD, lengths % _WORD)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(_M)
    hashes ^= hashes >> np.uint32(15)
    return (hashes & np.uint32(_POSITIVE)).astype(np.int64)


def _mix_words(
    hashes: NDArray[np.uint32], data: NDArray[np.uint8], starts: NDArray[np.int64], words: NDArray[np.int64]
) -> NDArray[np.uint32]:
    for step in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > step)
        if len(rows) < FEW_KEYS:
            for row in rows.tolist():
                begin = int(starts[row]) + step * _WORD
                hashes[row] = _finish(int(hashes[row]), data[begin : int(starts[row] + words[row] * _WORD)].tobytes())
            break
        positions = starts[rows] + step * _WORD
        word = data[positions].astype(np.uint32)
        for byte in range(1, _WORD):
            word |= data[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
        word *= np.uint32(_M)
        word ^= word >> np.uint32(_R)
        word *= np.uint32(_M)
        hashes[rows] = hashes[rows] * np.uint32(_M) ^ word
    return hashes


def _mix_tails(
    hashes: NDArray[np.uint32], data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """The one to three bytes after the last whole word."""
    tails = np.zeros(len(hashes), np.uint32)
    for byte in range(_WORD - 1):
        tails |= np.where(lengths > byte, data[positions + byte].astype(np.uint32) << np.uint32(8 * byte), np.uint32(0))
    return np.where(lengths > 0, (hashes ^ tails) * np.uint32(_M), hashes)


def _finish(hashed: int, data: bytes) -> int:
    """All words of one key."""
    for position in range(0, len(data), _WORD):
        word = int.from_bytes(data[position : position + _WORD], "little") * _M & _MASK
        word = (word ^ word >> _R) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ word
    return hashed
