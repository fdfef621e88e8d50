"""module:name in a pipeline file: whether it exists, found out without running what it names."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from headwater.pipelines.spec.mistakes import name_hint


def mistaken_reference(reference: str, directory: Path) -> str:
    """What is wrong with it; empty if nothing. A module in the directory comes before one that is installed."""
    module, colon, name = reference.partition(":")
    words = module.split(".")
    if not colon or not name.isidentifier() or not all(word.isidentifier() for word in words):
        return f'{reference!r} is not of the form "module:function".'
    beside = directory.joinpath(*words)
    for file in (beside.with_suffix(".py"), beside / "__init__.py"):
        if file.is_file():
            return _missing_in(file, name)
    try:
        is_installed = importlib.util.find_spec(words[0]) is not None
    except (ImportError, ValueError):
        is_installed = False
    return "" if is_installed else f"there is no module {module} in {directory}, and none is installed."


def _missing_in(file: Path, name: str) -> str:
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError as error:
        return f"{file.name} does not parse in line {error.lineno}: {error.msg}."
    except ValueError as error:
        return f"{file.name} does not parse: {error}."
    names = set(_top_level_names(tree))
    return "" if name in names else f"{file.name} has no {name}.{name_hint(name, names)}"


def _top_level_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
