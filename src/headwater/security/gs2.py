"""The head of a first SASL message (RFC 5801, section 4), and how it writes a name.

    n,[a=authzid],        the client does not bind to a channel, and wants to act as authzid

Binding to a channel (`p=`) is not served, and `y` would say that the server hides it. In a name, a comma is `=2C` and
an equals sign `=3D`. Names are compared as they are: no client applies SASLprep, so neither does the server.
"""

from dataclasses import dataclass


class MalformedGs2(ValueError):
    """The head of a SASL message is not one that is served."""


@dataclass(frozen=True, slots=True)
class Gs2Head:
    text: str
    """As it was received, with its last comma."""
    authzid: str
    """Empty if the client named none."""

    @property
    def length(self) -> int:
        return len(self.text)


def parse_gs2(message: str) -> Gs2Head:
    """The head that a message begins with. Raises MalformedGs2."""
    flag, *rest = message.split(",", 2)
    if flag != "n" or len(rest) != 2:
        raise MalformedGs2("The message does not begin with n, and an optional authorization identity.")
    written = rest[0]
    if written and not written.startswith("a="):
        raise MalformedGs2("The authorization identity does not begin with a=.")
    return Gs2Head(f"n,{written},", unescape_name(written[2:]) if written else "")


def gs2_head(authzid: str = "") -> str:
    return f"n,a={escape_name(authzid)}," if authzid else "n,,"


def escape_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(written: str) -> str:
    """The name, which is not empty. Raises MalformedGs2."""
    if not written:
        raise MalformedGs2("A name is empty.")
    first, *escapes = written.split("=")
    name = [first]
    for each in escapes:
        if each.startswith("2C"):
            name.append("," + each[2:])
        elif each.startswith("3D"):
            name.append("=" + each[2:])
        else:
            raise MalformedGs2("A name has an equals sign that does not begin =2C or =3D.")
    return "".join(name)
