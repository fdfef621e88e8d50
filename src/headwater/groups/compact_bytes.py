"""Writes the compact forms of Kafka's newer messages: lengths are variable and one too high, so that 0 is null."""


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    data = text.encode()
    return varint(len(data) + 1) + data


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
