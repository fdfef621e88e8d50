"""Where a command takes a password from: a file, standard input, or it makes one. Never from its arguments, which
every user of the machine can list."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.output import CommandFailed, note
from headwater.security.passwords import RANDOM_BYTES, generated_password
from headwater.security.plain import MAX_PART_BYTES

_OTHERS_MAY_READ = 0o007


def _refuse(value: str | None) -> None:
    if value is not None:
        raise CommandFailed(
            "A password in a command line can be read by every user of this machine, and stays in the shell's history.",
            "Use --password-file FILE or --password-stdin.",
            exit_code=2,
        )


PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="Holds the password; made here unless given.")
]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, or ask for it.")
]
Password = Annotated[
    str | None, typer.Option("--password", hidden=True, callback=_refuse, is_eager=True, expose_value=False)
]
"""There to be refused with a reason."""


def given_password(file: Path | None, is_stdin: bool) -> str | None:
    """None if neither says one. Raises CommandFailed."""
    if file is not None and is_stdin:
        raise CommandFailed("--password-file and --password-stdin both give a password.", "Use one.", exit_code=2)
    if file is not None:
        return _checked(_from_file(file))
    if not is_stdin:
        return None
    if sys.stdin.isatty():
        return _checked(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return _checked(sys.stdin.read(4 * MAX_PART_BYTES))


def new_password() -> str:
    return generated_password(os.urandom(RANDOM_BYTES))


def _from_file(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            if os.fstat(opened.fileno()).st_mode & _OTHERS_MAY_READ:
                note(f"Everybody on this machine may read the password in {file}. Run: chmod 600 {file}")
            return opened.read(4 * MAX_PART_BYTES)
    except OSError as error:
        raise CommandFailed(f"--password-file {file}: {error.strerror}.", exit_code=2) from error
    except UnicodeDecodeError:
        raise CommandFailed(f"--password-file {file}: a password is UTF-8 text.", exit_code=2) from None


def _checked(text: str) -> str:
    password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise CommandFailed("The password is empty.", exit_code=2)
    if len(password.encode(errors="surrogateescape")) > MAX_PART_BYTES:
        raise CommandFailed(f"A password has {MAX_PART_BYTES} bytes at most, or PLAIN could not send it.", exit_code=2)
    if not password.isprintable():
        raise CommandFailed(
            "The password has a character that is not seen, such as a second line or a tab.",
            "Use printable characters and plain spaces.",
            exit_code=2,
        )
    return password
