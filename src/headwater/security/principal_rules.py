"""Which user a client's certificate stands for: its distinguished name through Kafka's rules, or another of its names.

    RULE:pattern/replacement/     the whole name matches the pattern: what the replacement makes of it, is the user
    RULE:pattern/replacement/L    the same in lower case, or with U in upper case
    DEFAULT                       the name itself

The first rule that matches counts. Rules stand in a list or have commas between them; a comma within a pattern or a
replacement divides nothing, a slash there is written `\\/`. In a replacement `$1` is what the first group matched, `$0`
the match, and a number that the pattern has no group for is text. As in Kafka, what does not match again behind the
first match stays: `RULE:CN=(.*?)/$1-/` makes `-x` of `CN=x`, since `.*?` takes as little as it can.

Patterns are RE2's and not Java's: time linear to the name, no look-around, no back-references, at most 1,000
repetitions. What RE2 does not know is refused at the start, and so is what it reads otherwise than Java: nested and
intersected classes, `\\v`, `\\C`, octal numbers, the flag U. What remains: with `(?i)` RE2 ignores the case of all
letters, Java that of ASCII.

No certificate stands for a client without a name, for every user or for a user of the cluster's own: such names are
refused. So are control characters and line separators, which a `.` in Java does not match.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import re2
from cryptography import x509

from headwater.security.dn import UnreadableName, common_names, dn_of_certificate, subject_of
from headwater.security.principal import ANONYMOUS, EVERY_RESOURCE, Principal

MAX_NAME_CHARS: Final = 4_096
MAX_PATTERN_CHARS: Final = 4_096
MAX_COMPILED_BYTES: Final = 1024 * 1024
RESERVED_PREFIX: Final = "__"
"""Users whose names begin so are the cluster's own."""

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)
_GAP: Final = re.compile(r"[\s,]*")
_END_OF_RULE: Final = re.compile(r"\s*(?:,|$)")
_JAVA_TOKEN: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?|\]|&&|\(\?[a-z]*-?[a-z]*U|.", re.DOTALL)
_READ_OTHERWISE: Final = re.compile(r"\\[vC0-9]|\(\?.*U")
_REPLACEMENT_TOKEN: Final = re.compile(r"\\(.)|\$([0-9]+)|([^\\$]+)|(.)", re.DOTALL | re.ASCII)
_DEFAULT: Final = "DEFAULT"


class MalformedRule(ValueError):
    """A rule for principals is not one, or has a pattern that RE2 does not take."""


class NoPrincipal(ValueError):
    """A certificate stands for no user."""


class NoRuleApplies(NoPrincipal):
    """No rule matches the distinguished name of a certificate."""


class PrincipalSource(StrEnum):
    """The part of a certificate that names the user."""

    DN = "dn"
    CN = "cn"
    SAN_DNS = "san-dns"
    SAN_URI = "san-uri"


class PrincipalRules:
    """Kafka's `ssl.principal.mapping.rules`, in one text or many. Raises MalformedRule."""

    def __init__(self, rules: str | Sequence[str] = _DEFAULT) -> None:
        texts = [rules] if isinstance(rules, str) else rules
        self._rules = [rule for text in texts for rule in _parsed(text)]
        if not self._rules:
            raise MalformedRule("Without a rule no certificate stands for a user. DEFAULT takes every name as it is.")

    def name(self, dn: str) -> str:
        """The name of the user. Raises NoRuleApplies, and NoPrincipal for a name that no user may have."""
        _check_text(dn)
        for rule in self._rules:
            name = rule.apply(dn) if rule is not None else dn
            if name is not None:
                return _checked(name)
        raise NoRuleApplies(f"No rule applies to the name {_short(dn)}.")


@dataclass(frozen=True, slots=True)
class CertificatePrincipals:
    """Tells which user a certificate stands for. The rules are for distinguished names alone: raises MalformedRule."""

    source: PrincipalSource = PrincipalSource.DN
    rules: PrincipalRules | None = None

    def __post_init__(self) -> None:
        if self.rules is not None and self.source is not PrincipalSource.DN:
            raise MalformedRule(f"Rules are for distinguished names, and the user comes from {self.source}.")

    def of(self, certificate: bytes) -> Principal:
        """The user of a certificate in DER, that TLS has verified. Raises NoPrincipal."""
        try:
            if self.source is PrincipalSource.DN:
                dn = dn_of_certificate(certificate)
                return Principal.user(self.rules.name(dn) if self.rules is not None else _checked(dn))
            if self.source is PrincipalSource.CN:
                return Principal.user(_checked(_only(common_names(subject_of(certificate)), "common name")))
        except UnreadableName as error:
            raise NoPrincipal(str(error)) from error
        alternatives = _alternatives(certificate)
        if self.source is PrincipalSource.SAN_URI:
            return Principal.user(
                _checked(_only(alternatives.get_values_for_type(x509.UniformResourceIdentifier), "URI"))
            )
        names = alternatives.get_values_for_type(x509.DNSName)
        if not names:
            raise NoPrincipal("The certificate has no DNS name.")
        return Principal.user(_checked(names[0].lower()))


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Any
    replacement: tuple[str | int, ...]
    """Text, and numbers of groups."""
    letters: str
    """L for lower case, U for upper case, or nothing."""

    def apply(self, dn: str) -> str | None:
        """The name that comes of it; None if the rule does not match."""
        if self.pattern.fullmatch(dn) is None:
            return None
        name = "".join(self._replaced(dn))
        return name.lower() if self.letters == "L" else name.upper() if self.letters == "U" else name

    def _replaced(self, dn: str) -> Iterable[str]:
        """The name with every match replaced: behind a match, one that is empty is a match, too."""
        copied = position = 0
        while position <= len(dn) and (match := self.pattern.search(dn, position)) is not None:
            begin, end = match.span()
            yield dn[copied:begin]
            for part in self.replacement:
                yield part if isinstance(part, str) else match.group(part) or ""
            copied, position = end, max(end, begin + 1)
        yield dn[copied:]


def _parsed(text: str) -> Iterable[_Rule | None]:
    """None stands for DEFAULT."""
    position = _skip(text, 0)
    while position < len(text):
        match = _RULE.match(text, position)
        if match is not None:
            end = match.end()
        elif text.startswith(_DEFAULT, position):
            end = position + len(_DEFAULT)
        else:
            raise MalformedRule(f"A rule is DEFAULT or RULE:pattern/replacement/, not {_short(text[position:])}.")
        if _END_OF_RULE.match(text, end) is None:
            raise MalformedRule(f"Behind a rule comes a comma, or L or U and a comma, not {_short(text[end:])}.")
        yield _rule(*match.groups()) if match is not None else None
        position = _skip(text, end)


def _skip(text: str, position: int) -> int:
    gap = _GAP.match(text, position)
    return gap.end() if gap is not None else position


def _rule(pattern: str, replacement: str, letters: str) -> _Rule:
    if len(pattern) > MAX_PATTERN_CHARS or len(replacement) > MAX_PATTERN_CHARS:
        raise MalformedRule(
            f"The pattern of a rule and its replacement have at most {MAX_PATTERN_CHARS} characters each."
        )
    _check_dialect(pattern)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_COMPILED_BYTES
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        raise MalformedRule(f"The pattern {_short(pattern)} is not valid RE2: {_reason(error)}.") from None
    return _Rule(compiled, tuple(_parts(replacement, compiled.groups)), letters)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _check_dialect(pattern: str) -> None:
    """Raise MalformedRule for what RE2 compiles to something else than Java does."""
    is_in_class = False
    for token in _JAVA_TOKEN.findall(pattern):
        if _READ_OTHERWISE.match(token) or (is_in_class and token[0] in "[&" and token != "&"):
            raise MalformedRule(f"In the pattern {_short(pattern)}, RE2 reads {token} otherwise than Java does.")
        is_in_class = token[0] == "[" or (is_in_class and token != "]")


def _parts(replacement: str, groups: int) -> Iterable[str | int]:
    for match in _REPLACEMENT_TOKEN.finditer(replacement):
        escaped, digits, text, other = match.groups()
        if other is not None:
            raise MalformedRule(f"In the replacement {_short(replacement)} a $ has no number. A dollar is written \\$.")
        if digits is None:
            yield text if escaped is None else escaped
        elif int(digits[0]) <= groups:
            taken = next(count for count in range(len(digits), 0, -1) if count == 1 or int(digits[:count]) <= groups)
            yield int(digits[:taken])
            yield digits[taken:]
        elif groups:
            yield f"${digits}"
        else:
            raise MalformedRule(f"The replacement {_short(replacement)} has a number, and its pattern has no group.")


def _alternatives(certificate: bytes) -> x509.SubjectAlternativeName:
    try:
        return (
            x509.load_der_x509_certificate(certificate)
            .extensions.get_extension_for_class(x509.SubjectAlternativeName)
            .value
        )
    except x509.ExtensionNotFound:
        raise NoPrincipal("The certificate has no alternative names.") from None
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise NoPrincipal("The alternative names of the certificate cannot be read.") from error


def _only(names: Sequence[str], kind: str) -> str:
    if len(names) != 1:
        raise NoPrincipal(f"The certificate has {len(names)} names of the kind {kind}, and must have one.")
    return names[0]


def _checked(name: str) -> str:
    _check_text(name)
    if not name or name in (ANONYMOUS.name, EVERY_RESOURCE) or name.startswith(RESERVED_PREFIX):
        raise NoPrincipal(f"The certificate stands for {_short(name)}, which is the name of no user.")
    return name


def _check_text(name: str) -> None:
    if len(name) > MAX_NAME_CHARS:
        raise NoPrincipal(f"A name in the certificate has {len(name)} characters, the limit is {MAX_NAME_CHARS}.")
    if _UNPRINTABLE.search(name):
        raise NoPrincipal(f"A name in the certificate has control characters: {_short(name)}.")


def _short(text: str) -> str:
    return repr(text[:200])
