"""Starting Spark's JVM, and the archive of its classes, with Javas that only pretend."""

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from headwater.pipelines.jvm import class_cache
from headwater.pipelines.jvm.gateway import (
    JvmFailed,
    class_path,
    gateway_command,
    properties_text,
    spark_home,
    start_gateway,
)
from headwater.pipelines.jvm.java import Java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADWATER_CLASS_CACHE", raising=False)
    (tmp_path / "java" / "bin").mkdir(parents=True)
    return Java(tmp_path / "java", 21, "21.0.8", has_vector=True)


def pretend(java: Java, script: str) -> None:
    java.executable.write_text(f"#!/bin/sh\n{script}\n")
    java.executable.chmod(0o755)


def test_the_command_has_memory_options_and_a_class_path_in_order(java: Java) -> None:
    command = gateway_command(java, spark_home(), "3g", Path("/p"), ["-Xshare:auto"])
    assert command[0] == str(java.executable)
    assert {"-Xmx3g", "-Xshare:auto"} <= set(command)
    assert not [word for word in command if "jdk.incubator.vector" in word]
    jars = command[command.index("-cp") + 1].split(os.pathsep)
    assert jars == sorted(jars) == class_path(spark_home()) and len(jars) > 100
    assert command[-4:] == ["--properties-file", "/p", "--load-spark-defaults", "pyspark-shell"]


def test_settings_go_through_a_file_that_only_we_may_read(java: Java, tmp_path: Path) -> None:
    """They may hold passwords, and anybody can list the arguments of a process."""
    pretend(
        java,
        f"""
        for argument do
            case "$argument" in *spark.properties) cp -p "$argument" {tmp_path}/seen;; esac
            echo "$argument" >> {tmp_path}/arguments
        done
        exit 1""",
    )
    settings = {"spark.secret": "s3cret", "spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-Da=b -Dc=d"}
    with pytest.raises(JvmFailed):
        start_gateway(java, settings, log=tmp_path / "log")
    assert "spark.secret=s3cret\n" in (tmp_path / "seen").read_text()
    assert (tmp_path / "seen").stat().st_mode & 0o077 == 0
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert {"-Xmx2g", "-Da=b", "-Dc=d"} <= set(arguments)
    assert not [argument for argument in arguments if "s3cret" in argument]


@pytest.mark.parametrize(
    ("settings", "has_home"),
    [
        ({"spark.master": "local[2]"}, False),
        ({"spark.master": "local[2]", "spark.pyspark.python": "/usr/bin/another-python"}, True),
        ({"spark.master": "local-cluster[1,1,1024]"}, True),
        ({"spark.master": "spark://127.0.0.1:7077"}, True),
    ],
)
def test_python_processes_read_the_installed_pyspark_where_it_is_that_of_this_interpreter(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], has_home: bool
) -> None:
    """Spark finds PySpark by SPARK_HOME, in a zip file, and compiles it for each process again."""
    monkeypatch.setenv("SPARK_HOME", str(spark_home()))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    pretend(java, f"env > {tmp_path}/environment; exit 1")
    with pytest.raises(JvmFailed):
        start_gateway(java, settings, log=tmp_path / "log")
    lines = (tmp_path / "environment").read_text().splitlines()
    assert (f"SPARK_HOME={spark_home()}" in lines) is has_home


def test_settings_are_written_as_java_reads_them() -> None:
    assert properties_text({"a": "1", "b c=d": " x\\y\nz=#!"}) == "a=1\nb\\ c\\=d=\\ x\\\\y\\nz=#!\n"


def test_a_jvm_that_ends_at_its_start_is_told_with_its_last_words(java: Java, tmp_path: Path) -> None:
    pretend(java, "echo 'noise'; echo 'Error: could not reserve enough space' >&2; exit 7")
    with pytest.raises(JvmFailed, match=r"ended at its start \(exit code 7\)\. It said: Error: could not reserve"):
        start_gateway(java, {}, log=tmp_path / "log")


def test_without_an_archive_there_are_no_options_for_it(java: Java) -> None:
    assert class_cache.archive_options(java) == []


def test_an_archive_is_used_with_the_base_that_this_java_lacks(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = class_cache.archive_directory(java)
    directory.mkdir(parents=True)
    (directory / "spark.jsa").touch()
    assert class_cache.archive_options(java)[0] == f"-XX:SharedArchiveFile={directory}/base.jsa:{directory}/spark.jsa"
    (java.home / "lib" / "server").mkdir(parents=True)
    (java.home / "lib" / "server" / "classes.jsa").touch()
    assert class_cache.archive_options(java)[0] == f"-XX:SharedArchiveFile={directory}/spark.jsa"
    assert class_cache.build_in_background(java) is None, "it is there"
    monkeypatch.setenv("HEADWATER_CLASS_CACHE", "off")
    assert class_cache.archive_options(java) == []


def test_another_java_has_another_archive(java: Java) -> None:
    newer = Java(java.home, 21, "21.0.9", has_vector=True)
    assert class_cache.archive_directory(java) != class_cache.archive_directory(newer)


def test_an_archive_is_made_by_one_process_at_a_time(java: Java) -> None:
    import fcntl

    directory = class_cache.archive_directory(java)
    directory.mkdir(parents=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert class_cache.build(java) is None
    (directory / "spark.jsa").touch()
    assert class_cache.build(java) == directory / "spark.jsa"


def test_a_training_that_fails_leaves_no_archive_and_drops_the_oldest_others(java: Java) -> None:
    directory = class_cache.archive_directory(java)
    for age in range(4):
        old = directory.parent / f"old-{age}"
        old.mkdir(parents=True)
        os.utime(old, (1_000 - age, 1_000 - age))
    pretend(java, "exit 1")
    (java.home / "lib" / "server").mkdir(parents=True)
    (java.home / "lib" / "server" / "classes.jsa").touch()
    with pytest.raises(JvmFailed):
        class_cache.build(java)
    assert sorted(each.name for each in directory.parent.iterdir()) == sorted([directory.name, "old-0", "old-1"])
    assert not (directory / "spark.jsa").exists()
    assert class_cache.build_in_background(java) is None, "not again on the same day"
