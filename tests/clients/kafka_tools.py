"""Kafka's command-line tools, several runs in one JVM: a program of java_tools/ reads the arguments of each."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench import maven

SOURCES = Path(__file__).parent / "java_tools"
QUICK_JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
RUN_TIMEOUT_S = 240


def run_all(program: str, runs: Sequence[str], folder: Path) -> list[str]:
    """What each run printed, its arguments first. Skips the test where the tools cannot be had."""
    if shutil.which("javac") is None:
        pytest.skip("`javac` is not installed (apt-get install default-jdk-headless)")
    try:
        jars = maven.class_path("tools", maven.KAFKA_TOOLS)
    except maven.JarsUnavailable as reason:
        pytest.skip(f"Kafka's tools are not here: {reason}")
    file = folder / "runs"
    file.write_text("\n".join(runs))
    done = subprocess.run(
        [*QUICK_JAVA, "-cp", jars, str(SOURCES / f"{program}.java"), str(file)],
        capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=True,
    )  # fmt: skip
    blocks = done.stdout.split("\n# ")[1:]
    assert blocks[-1].strip() == "end", done.stdout + done.stderr
    return blocks[:-1]
