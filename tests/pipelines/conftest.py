"""One Spark for all tests of pipelines: it takes seconds to start."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.pipelines.jvm.java import NoJava
from headwater.pipelines.run.session import spark_session, spark_settings
from headwater.pipelines.spec.pipeline import Pipeline, Settings
from tests.pipelines.running import QUICK_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session with the settings of pipelines, on two cores. A test that makes views takes `spark.newSession()`."""
    pytest.importorskip("pyspark", reason="the extra headwater[spark] is not installed")
    scratch = tmp_path_factory.mktemp("spark")
    nobody = Pipeline("tests", Path(scratch / "tests.toml"), Settings(), (), (), ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWATER_CLASS_CACHE", "off")  # nothing is left behind in the home directory
        patch.setenv("HEADWATER_CACHE", str(scratch / "cache"))
        options = f"-Dderby.stream.error.file={scratch / 'derby.log'} {QUICK_JVM}"
        confs = {
            "spark.driver.extraJavaOptions": options,
            # Small data: compiling code for each query costs more than it saves.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
        settings = spark_settings(nobody, "local[2]", confs)
        try:
            with spark_session(settings, Path(__file__).parents[2]) as (session, _):
                yield session
        except NoJava as error:
            pytest.skip(str(error))
