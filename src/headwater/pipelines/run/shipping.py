"""What executors need to have: the modules beside the pipeline's file, and on a cluster Headwater itself.

Libraries that these import (pyarrow, numpy, cramjam, crc32c) are installed where executors run, as PySpark's are.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.pipelines.spec.pipeline import Pipeline
from headwater.pipelines.spec.sinks import PythonSink
from headwater.pipelines.spec.steps import PythonStep, Stateful

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIXES = (".py", ".json", ".typed")


def ship(pipeline: Pipeline, spark: "SparkSession", scratch: Path, *, is_local: bool) -> None:
    """Archives are made in `scratch`, which stays until the session ends."""
    for source in modules_beside(pipeline):
        spark.sparkContext.addPyFile(str(_archive(source, scratch) if source.is_dir() else source))
    if not is_local:
        for package in own_packages():
            spark.sparkContext.addPyFile(str(_archive(package, scratch)))


def modules_beside(pipeline: Pipeline) -> list[Path]:
    """The top-level modules and packages in the file's directory that the pipeline names, and the file if it is one."""
    references = [step.does.function for step in pipeline.steps if isinstance(step.does, PythonStep)]
    references += [step.does.processor for step in pipeline.steps if isinstance(step.does, Stateful)]
    references += [sink.does.function for sink in pipeline.sinks if isinstance(sink.does, PythonSink)]
    found = [pipeline.file.resolve()] if pipeline.file.suffix == ".py" else []
    for name in sorted({reference.partition(":")[0].partition(".")[0] for reference in references}):
        module, package = pipeline.directory / f"{name}.py", pipeline.directory / name
        if module.is_file():
            found.append(module)
        elif (package / "__init__.py").is_file():
            found.append(package)
    return found


def own_packages() -> Iterator[Path]:
    import headwater

    assert headwater.__file__ is not None, "Headwater is a package with an __init__"
    home = Path(headwater.__file__).parent
    yield home
    beside = home.parent / "pyspark_headwater"
    if beside.is_dir():
        yield beside


def _archive(package: Path, scratch: Path) -> Path:
    archive = scratch / f"{package.name}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for file in sorted(package.rglob("*")):
            if file.is_file() and file.suffix in SUFFIXES:
                writer.write(file, file.relative_to(package.parent))
    return archive
