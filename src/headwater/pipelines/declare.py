"""Pipelines written in Python: decorators and calls that declare what a TOML file would.

    from headwater.pipelines.declare import pipeline, sink, source, step

    pipeline("big-orders", trigger="1s")
    source("orders", kind="topic", topic="orders", from_="earliest")
    step("valid", kind="parse", input="orders", format="json", schema="id string, amount double")

    @step
    def big(valid):                       # reads the step `valid`, a DataFrame
        return valid.where("amount > 1000")

    sink("show", kind="console", input="big")

A decorated source takes the Spark session and returns a DataFrame; a decorated step is given the DataFrames that its
parameters are named after; a decorated sink is called with each batch and its number. Keys are those of the TOML file;
one that is a word of Python gets an underscore (`from_`).

Importing such a module anywhere but in `headwater pipeline` declares nothing: executors do it to find its functions.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, overload

from headwater.pipelines.spec.declarations import Declaration, FileSection
from headwater.pipelines.spec.mistakes import Location

__all__ = ["pipeline", "sink", "source", "step"]

Function = TypeVar("Function", bound=Callable[..., Any])

_collected: ContextVar[tuple[str, list[Declaration]] | None] = ContextVar("declarations of the module", default=None)


@contextmanager
def collecting(file: str) -> Iterator[list[Declaration]]:
    """Gathers what the code inside declares, as standing in this file."""
    declarations: list[Declaration] = []
    token = _collected.set((file, declarations))
    try:
        yield declarations
    finally:
        _collected.reset(token)


def pipeline(name: str | None = None, **settings: Any) -> None:
    """Name and settings of the pipeline: bootstrap, checkpoint, trigger, spark."""
    named = {"name": name} if name is not None else {}
    _declare(FileSection.PIPELINE, "", {**named, **settings}, _caller_line())


@overload
def source(name: str, /, **values: Any) -> None: ...
@overload
def source(function: Function, /) -> Function: ...
def source(given: str | Function, /, **values: Any) -> Function | None:
    """Declare a source by its kind and keys, or a function that makes one."""
    return _declare_either(FileSection.SOURCE, given, values, _caller_line())


@overload
def step(name: str, /, **values: Any) -> None: ...
@overload
def step(function: Function, /) -> Function: ...
def step(given: str | Function, /, **values: Any) -> Function | None:
    """Declare a step by its kind and keys, or a function that does it."""
    return _declare_either(FileSection.STEP, given, values, _caller_line())


@overload
def sink(name: str, /, **values: Any) -> None: ...
@overload
def sink(*, input: str, **values: Any) -> Callable[[Function], Function]: ...
def sink(name: str | None = None, /, **values: Any) -> Callable[[Function], Function] | None:
    """Declare a sink by its kind and keys, or decorate a function that is called with each batch of an input."""
    line = _caller_line()
    if name is not None:
        _declare(FileSection.SINK, name, values, line)
        return None

    def decorate(function: Function) -> Function:
        _declare(FileSection.SINK, function.__name__, values, line, function)
        return function

    return decorate


def _declare_either(section: FileSection, given: str | Function, values: dict[str, Any], line: int) -> Function | None:
    if isinstance(given, str):
        _declare(section, given, values, line)
        return None
    _declare(section, given.__name__, values, line, given)
    return given


def _declare(
    section: FileSection, name: str, values: dict[str, Any], line: int, function: Callable[..., Any] | None = None
) -> None:
    collected = _collected.get()
    if collected is None:
        return
    file, declarations = collected
    location = Location(file, inspect.unwrap(function).__code__.co_firstlineno if function is not None else line)
    spelled = {key.removesuffix("_"): value for key, value in values.items()}
    declarations.append(Declaration(section, name, spelled, location, function=function))


def _caller_line() -> int:
    """Of the code that called the function that calls this."""
    return sys._getframe(2).f_lineno
