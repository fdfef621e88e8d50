"""What executors need to have: the modules beside the pipeline's file, and on a cluster Headwater itself.

A package travels as an archive of what is inside it, and is unpacked under its name in the directory where Spark keeps
the files of a job. Python workers look for modules there, so it is imported from real files: Headwater reads some of
its own (a zip on the path would hide them).

Libraries that these import (pyarrow, numpy, cramjam, crc32c) are installed where executors run, as PySpark's are.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.pipelines.spec.pipeline import Pipeline
from headwater.pipelines.spec.sinks import PythonSink
from headwater.pipelines.spec.steps import PythonStep, StatefulStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT_OUT = ("__pycache__",)


def ship(pipeline: Pipeline, spark: "SparkSession", scratch: Path, *, is_local: bool) -> None:
    """Archives are made in `scratch`, which stays until the session ends."""
    for source in modules_beside(pipeline):
        if source.is_dir():
            _ship_package(source, spark, scratch)
        else:
            spark.sparkContext.addPyFile(str(source))
    if not is_local:
        for package in own_packages():
            _ship_package(package, spark, scratch)


def modules_beside(pipeline: Pipeline) -> list[Path]:
    """The top-level modules and packages in the file's directory that the pipeline names, and the file if it is one."""
    references = [step.does.function for step in pipeline.steps if isinstance(step.does, PythonStep)]
    references += [step.does.processor for step in pipeline.steps if isinstance(step.does, StatefulStep)]
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


def package_archive(package: Path, scratch: Path) -> Path:
    """A zip of what is inside the package."""
    archive = scratch / f"{package.name}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for file in sorted(package.rglob("*")):
            if file.is_file() and not set(LEFT_OUT) & set(file.parts):
                writer.write(file, file.relative_to(package))
    return archive


def _ship_package(package: Path, spark: "SparkSession", scratch: Path) -> None:
    spark.sparkContext.addArchive(f"{package_archive(package, scratch)}#{package.name}")
