"""Starting Spark's JVM directly, on any Java: no shell scripts, and no second JVM that computes the command line.

PySpark finds a JVM that is already there by two variables of the environment, the port and the secret of its gateway.
The JVM ends with this process: it watches its standard input.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from headwater.pipelines.jvm.java import Java, home_for_spark

DEFAULT_HEAP = "1g"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.02
LOG_TAIL_BYTES = 4_000
MAX_INFO_BYTES = 4_096

OPENED_PACKAGES = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
"""Of java.base: what Spark reaches into."""


class JvmFailed(Exception):
    """Spark's JVM did not start. The message ends with what it said last."""


@dataclass(frozen=True, slots=True)
class JvmGateway:
    """A running JVM that PySpark in this process is connected to, or will be."""

    process: "subprocess.Popen[bytes]"
    log: Path | None

    def close(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """The JVM ends when its standard input is closed; a JVM that does not end is killed."""
        assert self.process.stdin is not None, "the gateway was started with a pipe"
        self.process.stdin.close()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def spark_home() -> Path:
    """Of the installed PySpark. Raises ImportError."""
    from importlib.util import find_spec

    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ImportError("pyspark is not installed", name="pyspark")
    return Path(spec.origin).parent


def class_path(home: Path) -> list[str]:
    """In one order always: a class archive is of use only for the class path that it was made with."""
    return sorted(str(jar) for jar in (home / "jars").glob("*.jar"))


def start_gateway(
    java: Java,
    settings: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    log: Path | None = None,
    modules: Path | None = None,
) -> JvmGateway:
    """Start a JVM with these settings of Spark, and make PySpark use it. What it logs goes to a file, or to stderr.
    Python processes on this machine that it starts find the modules in a directory.

    Raises JvmFailed, or ImportError if there is no PySpark."""
    home = spark_home()
    scratch = Path(tempfile.mkdtemp(prefix="headwater-spark-"))
    info = scratch / "connection"
    environment = {
        **os.environ,
        "JAVA_HOME": str(home_for_spark(java)),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_SCALA_VERSION": _scala_version(home),  # executors that this JVM starts ask for it
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    if _runs_our_python(settings):
        environment.pop("SPARK_HOME", None)
    else:
        environment["SPARK_HOME"] = str(home)
    if modules is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))
    properties = scratch / "spark.properties"
    heap = settings.get("spark.driver.memory", DEFAULT_HEAP)
    options = [*options, *settings.get("spark.driver.extraJavaOptions", "").split()]
    command = gateway_command(java, home, heap, properties, options)
    try:
        # In a file that only we may read: settings hold secrets, and anybody can list the arguments of a process.
        properties.touch(mode=0o600)
        properties.write_text(properties_text(settings), encoding="utf-8")
        with log.open("wb") if log is not None else nullcontext() as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=environment,
                process_group=0,  # Ctrl-C is for us alone: we stop the queries first
            )
        gateway = JvmGateway(process, log)
        try:
            port, secret = _connection(gateway, info)
        except BaseException:
            process.kill()
            gateway.close()
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = secret
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return gateway


def _runs_our_python(settings: Mapping[str, str]) -> bool:
    """Whether all Python processes of this Spark are of this machine and this interpreter, which has PySpark installed.
    With SPARK_HOME they would read PySpark from a zip file without compiled modules: half a second of each start."""
    master = settings.get("spark.master", "local")
    python = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    return (master == "local" or master.startswith("local[")) and python == sys.executable


def gateway_command(java: Java, home: Path, heap: str, properties: Path, options: Sequence[str]) -> list[str]:
    return [
        str(java.executable),
        *jvm_options(heap),
        *options,
        "-cp",
        os.pathsep.join(class_path(home)),
        "org.apache.spark.deploy.SparkSubmit",
        *("--properties-file", str(properties), "--load-spark-defaults"),
        "pyspark-shell",
    ]


def properties_text(settings: Mapping[str, str]) -> str:
    """As Java's Properties read it."""
    return "".join(f"{_escaped(name, ' :=#!')}={_escaped(value, '')}\n" for name, value in sorted(settings.items()))


def jvm_options(heap: str) -> list[str]:
    """What Spark gives every JVM that it starts, except the module that only MLlib uses."""
    return [
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES),
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "--sun-misc-unsafe-memory-access=allow",
        "--enable-native-access=ALL-UNNAMED",
        f"-Xmx{heap}",
    ]


def _escaped(text: str, also: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    text = "".join(f"\\{letter}" if letter in also else letter for letter in text)
    return f"\\{text}" if text.startswith(" ") else text


def _scala_version(home: Path) -> str:
    """It is part of the names of Spark's own jars."""
    names = (re.fullmatch(r"spark-core_([\d.]+)-.*", jar.name) for jar in (home / "jars").glob("spark-core_*.jar"))
    return next((name[1] for name in names if name is not None), "2.13")


def _connection(gateway: JvmGateway, info: Path) -> tuple[int, str]:
    """The JVM writes its port and secret into a file of another name and renames it: it is whole when it is there."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not info.exists():
        if gateway.process.poll() is not None:
            raise JvmFailed(f"Spark's JVM ended at its start (exit code {gateway.process.returncode}).{_tail(gateway)}")
        if time.monotonic() > deadline_s:
            raise JvmFailed(f"Spark's JVM did not start within {START_TIMEOUT_S:.0f} s.{_tail(gateway)}")
        time.sleep(POLL_S)
    with info.open("rb") as file:
        content = file.read(MAX_INFO_BYTES)
    port, secret_bytes = struct.unpack_from("!ii", content)
    return port, content[8 : 8 + secret_bytes].decode()


def _tail(gateway: JvmGateway) -> str:
    if gateway.log is None:
        return ""
    with gateway.log.open("rb") as file:
        file.seek(max(0, gateway.log.stat().st_size - LOG_TAIL_BYTES))
        lines = file.read().decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith(("Error", "Exception", "java.", "Caused by"))]
    said = (errors or lines)[:1]
    return f" It said: {said[0].strip()} (more in {gateway.log})" if said else f" See {gateway.log}."
