"""A dead letter as its reader finds it: what its headers say of the record that a queue gave up on.

The broker writes `headwater.dlq.topic`, `.partition`, `.offset` and others; a redrive adds `headwater.redrive-of:
<topic>/<partition>/<offset>` of the letter. What they hold may come from any client.
"""

from confluent_kafka import Message

PREFIX = "headwater.dlq."
TOPIC, PARTITION, OFFSET = f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"
REDRIVE_OF = "headwater.redrive-of"
MAX_DIGITS = 18


def origin_of(letter: Message) -> str:
    """The topic that a letter came from; empty if it does not say."""
    return _header(letter, TOPIC).decode(errors="replace")


def number_in(letter: Message, name: str) -> int:
    """What a header counts; -1 if it does not."""
    text = _header(letter, name)
    return int(text) if text.isdigit() and len(text) <= MAX_DIGITS else -1


def is_bare(letter: Message) -> bool:
    """Whether the letter says where it came from, and nothing else."""
    has_content = letter.key() is not None or letter.value() is not None
    return not has_content and number_in(letter, OFFSET) >= 0 and all(map(is_about_letters, _headers(letter)))


def is_about_letters(header: str) -> bool:
    """Whether a header was not the record's own."""
    return header.startswith(PREFIX) or header == REDRIVE_OF


def _header(letter: Message, name: str) -> bytes:
    return _headers(letter).get(name) or b""


def _headers(letter: Message) -> dict[str, bytes | None]:
    return dict(letter.headers() or ())
