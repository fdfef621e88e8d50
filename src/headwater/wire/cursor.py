"""A position in the bytes of one message, from which readers take. Every count is bounded by the bytes that remain."""

from collections.abc import Iterator

MAX_ELEMENTS = 500_000
"""Array elements in one request: bounds the memory that small elements can cost."""


class MalformedRequest(Exception):
    """The bytes are not a message of that kind and version."""


class Cursor:
    """A read position in the bytes of one request."""

    __slots__ = ("buffer", "elements_left", "end", "position")

    def __init__(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> None:
        self.buffer = memoryview(buffer)
        self.position = position
        self.end = len(buffer)
        self.elements_left = MAX_ELEMENTS

    def take(self, size: int) -> memoryview:
        start = self.position
        stop = start + size
        if size < 0 or stop > self.end:
            raise MalformedRequest(f"a field of {size} bytes at {start} does not fit in {self.end} bytes")
        self.position = stop
        return self.buffer[start:stop]

    def uvarint(self) -> int:
        position = self.position
        if position < self.end and (byte := self.buffer[position]) < 0x80:  # short, as nearly always
            self.position = position + 1
            return byte
        result = shift = 0
        while True:
            if self.position >= self.end or shift > 28:
                raise MalformedRequest("a variable-length number does not end")
            byte = self.buffer[self.position]
            self.position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def count(self, announced: int, min_element_bytes: int) -> int:
        """Check an announced number of elements against what the rest could hold."""
        if announced * min_element_bytes > self.end - self.position:
            raise MalformedRequest(f"{announced} elements are announced, {self.end - self.position} bytes remain")
        self.elements_left -= announced
        if self.elements_left < 0:
            raise MalformedRequest(f"more than {MAX_ELEMENTS} elements in one request")
        return announced

    def skip_tags(self) -> None:
        position = self.position
        if position < self.end and not self.buffer[position]:  # none, as nearly always
            self.position = position + 1
            return
        for _, size in self.tags():
            self.take(size)

    def tags(self) -> Iterator[tuple[int, int]]:
        """Number and size of each tagged field. The caller reads or skips its bytes before it takes the next."""
        seen: set[int] = set()
        for _ in range(self.count(self.uvarint(), 2)):
            tag = self.uvarint()
            if tag in seen:
                raise MalformedRequest(f"tagged field {tag} comes twice")
            seen.add(tag)
            yield tag, self.uvarint()


def check_null(length: int, may_be_null: bool, name: str) -> None:
    """A negative length says null, if it is -1 and the field may be null; otherwise it is refused."""
    if length != -1:
        raise MalformedRequest(f"{name} has the length {length}")
    if not may_be_null:
        raise MalformedRequest(f"{name} is null, which it may not be in this version")
