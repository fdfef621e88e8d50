"""The pipeline as a Python module: importing it declares the pipeline (`headwater.pipelines.declare`)."""

import importlib.util
import sys
import traceback
from pathlib import Path

from headwater.pipelines.declare import collecting
from headwater.pipelines.spec.mistakes import BadPipeline, Location, Mistake
from headwater.pipelines.spec.pipeline import Draft, read_pipeline


def read_python(file: Path) -> Draft:
    """Runs the module. Raises BadPipeline, also for what the module raises."""
    if not file.is_file():
        raise BadPipeline([Mistake(Location(str(file)), "It cannot be read: there is no such file.")])
    if not file.stem.isidentifier():
        raise BadPipeline([Mistake(Location(str(file)), "A module's name has letters, digits and underscores only.")])
    taken = getattr(sys.modules.get(file.stem), "__file__", None) if file.stem in sys.modules else str(file)
    if taken is None or Path(taken).resolve() != file.resolve():
        raise BadPipeline([Mistake(Location(str(file)), f"Another module is called {file.stem}: rename the file.")])
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    directory = str(file.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)  # for the modules beside it, now and when its functions are called
    # Under its own name, so that executors can import what its functions hand to Spark.
    sys.modules[file.stem] = module
    try:
        with collecting(str(file)) as declarations:
            # The text itself: bytecode of an older text counts as new if size and second are the same.
            exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[file.stem]
        raise BadPipeline(
            [Mistake(Location(str(file), _line_in(file, error)), f"{type(error).__name__}: {error}")]
        ) from error
    return read_pipeline(file, declarations)


def _line_in(file: Path, error: Exception) -> int:
    """The last line of the file itself on the way to the error."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return error.lineno or 0
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return (lines[-1] or 0) if lines else 0
