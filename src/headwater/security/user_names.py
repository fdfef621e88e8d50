"""How users may be named, so that every client can log in and no name means more than a name.

kafka-python does not escape `,` and `=` in SCRAM; `*` stands for all users in bindings; clients that were not asked who
they are, are ANONYMOUS; and names that begin with `__` are Headwater's own.
"""

from typing import Final

MAX_USER_CHARS: Final = 128
MAX_PRINCIPAL_CHARS: Final = 256
_OWN_PREFIX: Final = "__"
_TAKEN: Final = ("*", "ANONYMOUS")


class UnacceptableUserName(ValueError):
    """A name that no user can have; the message says what to do."""


def check_user_name(name: str, is_any_name: bool = False) -> None:
    """`is_any_name`: commas and equals signs, too. Raises UnacceptableUserName."""
    if not 1 <= len(name) <= MAX_USER_CHARS:
        raise UnacceptableUserName(f"A user name has 1 to {MAX_USER_CHARS} characters, not {len(name)}.")
    check_principal_name(name)
    if not is_any_name and ("," in name or "=" in name):
        raise UnacceptableUserName(
            f"kafka-python cannot log in as {name!r}: choose a name without comma and equals sign, or give --any-name."
        )


def check_principal_name(name: str) -> None:
    """Also for names that others give: what may stand in a principal at all. Raises UnacceptableUserName."""
    if not 1 <= len(name) <= MAX_PRINCIPAL_CHARS:
        raise UnacceptableUserName(f"A principal's name has 1 to {MAX_PRINCIPAL_CHARS} characters, not {len(name)}.")
    if not name.isprintable():
        raise UnacceptableUserName(
            f"{name!r} has a character that is not seen: choose a name of printable characters and plain spaces."
        )
    if name in _TAKEN:
        raise UnacceptableUserName(f"{name} does not name a single user: choose another name.")
    if name.startswith(_OWN_PREFIX):
        raise UnacceptableUserName(
            f"Names that begin with {_OWN_PREFIX}, as {name!r} does, are Headwater's own: choose another name."
        )
