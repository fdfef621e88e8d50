"""Topic names by regular expression, in the syntax of RE2 (KIP-848).

Any client that may join a group can send a pattern. RE2 matches in time linear to the name, whatever the pattern, and
has neither look-around nor back-references; the size of what it compiles to is limited here.
"""

from headwater.model.errors import ErrorCode, RequestError

MAX_PATTERN_CHARS = 4_096
MAX_COMPILED_BYTES = 1024 * 1024


class TopicPattern:
    """Matches whole names. Raises RequestError for an invalid pattern."""

    def __init__(self, text: str) -> None:
        # Most brokers never meet a pattern; they need not load the engine.
        import re2

        if len(text) > MAX_PATTERN_CHARS:
            raise RequestError(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"A pattern has at most {MAX_PATTERN_CHARS} characters."
            )
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = MAX_COMPILED_BYTES
        try:
            self._compiled = re2.compile(text, options)
        except (re2.error, UnicodeError) as error:
            raise RequestError(
                ErrorCode.INVALID_REGULAR_EXPRESSION, f"The pattern is not valid RE2: {_reason(error)}."
            ) from None

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
