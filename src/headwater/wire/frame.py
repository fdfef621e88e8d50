"""Frames: a four-byte length, then that many bytes.

`FrameReader` is fed through a buffer that it offers (`buffer`, then `advance`), so that the bytes of a large request
land where they will stay, without a copy. It holds no memory between requests.

A length is checked before anything is reserved for it: a small limit until the first valid request, a larger one after.
Even within the limit, memory grows only as bytes arrive, so that an announced length costs nothing.
"""

import struct

FIRST_FRAME_LIMIT_BYTES = 64 * 1024
FIRST_GROWTH_BYTES = 2 * 1024
"""While the small limit holds: what strangers announce costs them as much as us."""
GROWTH_BYTES = 2 * 1024 * 1024
_LENGTH = struct.Struct(">i")


_TLS_RECORD = range(0x160300, 0x160305)
"""What a TLS handshake begins with: the kind of the record, and a version."""


class FrameTooLarge(Exception):
    """A frame announces more bytes than the connection may send."""

    def __init__(self, length: int, limit_bytes: int) -> None:
        super().__init__(f"a request announces {length} bytes; {limit_bytes} is the limit here")
        self.is_tls = length >> 8 in _TLS_RECORD
        """The length looks like the beginning of a TLS handshake."""


class FrameReader:
    def __init__(self, scratch: bytearray, limit_bytes: int = FIRST_FRAME_LIMIT_BYTES) -> None:
        """`scratch` may be shared by all connections of one loop: nothing stays in it between two calls."""
        self.limit_bytes = limit_bytes
        self._scratch = memoryview(scratch)
        self._start_of_length = b""
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._filled = 0

    @property
    def is_between_frames(self) -> bool:
        return self._frame is None and not self._start_of_length

    @property
    def pending_bytes(self) -> int:
        """Memory held for a frame that is not complete."""
        return len(self._frame) if self._frame is not None else 0

    def drop(self) -> None:
        """Give up a frame that is not complete: nothing more arrives."""
        self._frame, self._start_of_length = None, b""

    def buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._frame is None:
            return self._scratch
        if self._filled == len(self._frame):
            self._grow(self._frame)
        return memoryview(self._frame)[self._filled :]

    def advance(self, received: int) -> list[bytearray]:
        """`received` bytes were put into the buffer; return the frames that are complete now."""
        if self._frame is None:
            return self._split(received)
        self._filled += received
        if self._filled < self._frame_bytes:
            return []
        frame, self._frame = self._frame, None
        return [frame]

    def _split(self, received: int) -> list[bytearray]:
        data = self._scratch[:received]
        if self._start_of_length:
            data = memoryview(self._start_of_length + bytes(data))
            self._start_of_length = b""
        frames: list[bytearray] = []
        position = 0
        while len(data) - position >= 4:
            (length,) = _LENGTH.unpack_from(data, position)
            self._check(length)
            position += 4
            if len(data) - position < length:
                self._begin(length, data[position:])
                return frames
            frames.append(bytearray(data[position : position + length]))
            position += length
        self._start_of_length = bytes(data[position:])
        return frames

    def _begin(self, length: int, arrived: memoryview) -> None:
        self._frame_bytes = length
        self._filled = len(arrived)
        growth_bytes = GROWTH_BYTES if self.limit_bytes > FIRST_FRAME_LIMIT_BYTES else FIRST_GROWTH_BYTES
        self._frame = bytearray(min(length, max(growth_bytes, 2 * len(arrived))))
        self._frame[: len(arrived)] = arrived

    def _grow(self, frame: bytearray) -> None:
        """Replace the buffer by a larger one. The old one is not resized: the transport may still have a view of it."""
        grown = bytearray(min(self._frame_bytes, 2 * len(frame)))
        grown[: len(frame)] = frame
        self._frame = grown

    def _check(self, length: int) -> None:
        if length < 0 or length > self.limit_bytes:
            raise FrameTooLarge(length, self.limit_bytes)
