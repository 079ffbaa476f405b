"""The rules that hold for the whole source tree, most of them read from it with `ast`.

Floors, `__all__`, docstrings, error handling, lazy roots.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "rollout", "thread_store")
FLOORS = {name: floor for floor, name in enumerate(PACKAGES)}
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PUBLIC = [path for path in MODULES if not path.name.startswith("_") or path.name == "__init__.py"]

# `protocol` computes and never waits, reads or writes.
IO_MODULES = frozenset(
    {"aiofiles", "anyio", "asyncio", "click", "fcntl", "io", "mmap", "multiprocessing", "pathlib", "rich"}
    | {"select", "selectors", "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile", "watchfiles"}
)
PURE_OS_NAMES = frozenset({"PathLike", "fsdecode", "fsencode", "fspath", "urandom"})

# What `from rollout import RolloutRecorder` must not pay for.
NOT_FOR_RECORDING = frozenset(
    {"click", "http.client", "orjson", "platformdirs", "pydantic", "rich", "rollout.check", "rollout.reader"}
    | {"rollout.repair", "sqlite3", "thread_store", "urllib.request", "watchfiles", "zstandard"}
)


def in_tree(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Every absolute import, wherever it stands: a cycle inside a function is a cycle too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the floor"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def exported_names(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            getattr(target, "id", "") == "__all__" for target in node.targets
        ):
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def definitions(tree: ast.Module) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: node for node in tree.body if isinstance(node, kinds)}


def sorting_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that ruff keeps."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def run_python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("path", MODULES, ids=in_tree)
def test_imports_of_a_module_go_downward(path: Path) -> None:
    """No package imports from a floor above its own, and nobody imports the command line."""
    package = path.relative_to(ROOT).parts[0]
    names = set(imported_modules(parse(path)))
    upward = {name for name in names if FLOORS.get(name.split(".")[0], -1) > FLOORS[package]}
    assert not upward
    if not in_tree(path).startswith(("thread_store/cli/", "thread_store/__main__.py")):
        assert not {name for name in names if name.startswith("thread_store.cli")}
    assert not {name for name in names if name.split(".")[0] in ("tests", "benches")}


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[-2] == "protocol"], ids=in_tree)
def test_protocol_does_no_io(path: Path) -> None:
    """The lowest floor is pure: no event loop, no file, no thread."""
    tree = parse(path)
    assert not {name.split(".")[0] for name in imported_modules(tree)} & IO_MODULES
    for node in ast.walk(tree):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), f"line {node.lineno}"
        if isinstance(node, ast.Call):
            assert getattr(node.func, "id", "") != "open", f"line {node.lineno}"
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "os":
            assert node.attr in PURE_OS_NAMES, f"line {node.lineno}: os.{node.attr}"


@pytest.mark.parametrize("path", PUBLIC, ids=in_tree)
def test_module_names_all_it_offers(path: Path) -> None:
    """`__all__` is sorted, holds each public class and function, and nothing that isn't there."""
    tree = parse(path)
    exported = exported_names(tree)
    assert exported is not None, "it has no __all__"
    assert exported == sorted(exported, key=sorting_key)
    assert not {name for name in definitions(tree) if not name.startswith("_")} - set(exported)
    module = importlib.import_module(
        in_tree(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    assert not [name for name in exported if not hasattr(module, name)]


@pytest.mark.parametrize("path", PUBLIC, ids=in_tree)
def test_public_names_have_docstrings(path: Path) -> None:
    """A module says what it is, and so does each class and function it offers."""
    tree = parse(path)
    assert ast.get_docstring(tree), "the module has no docstring"
    nodes = definitions(tree)
    undocumented = [
        name for name in exported_names(tree) or () if name in nodes and not ast.get_docstring(nodes[name])
    ]
    assert not undocumented


@pytest.mark.parametrize("package", PACKAGES)
def test_public_methods_of_a_root_have_docstrings(package: str) -> None:
    """Each public method of a class that a package root offers says what it does."""
    root = importlib.import_module(package)
    offered = [value for value in (getattr(root, name) for name in root.__all__) if isinstance(value, type)]
    methods = [
        f"{each.__qualname__}.{name}"
        for each in offered
        if each.__module__.split(".")[0] in PACKAGES
        for name, member in vars(each).items()
        if not name.startswith("_")
        and (callable(member) or isinstance(member, property | classmethod | staticmethod))
        if not (member.__func__ if isinstance(member, classmethod | staticmethod) else member).__doc__
    ]
    assert not methods


@pytest.mark.parametrize("path", MODULES, ids=in_tree)
def test_no_handler_swallows_what_it_catches(path: Path) -> None:
    """No bare except; a handler of all exceptions keeps or raises them; no OSError is passed over."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: bare except"
            caught = caught_names(node.type)
            if caught & {"Exception", "BaseException"}:
                assert raises_again(node) or uses_error(node), f"line {node.lineno}: {caught} is lost"
            if caught & {"OSError", "IOError", "EnvironmentError"}:
                assert not only_passes(node), f"line {node.lineno}: an OSError is passed over"
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) == "suppress"
        ):
            too_wide = {"OSError", "Exception", "BaseException"} & {
                name for arg in node.args for name in caught_names(arg)
            }
            assert not too_wide, f"line {node.lineno}: suppress({', '.join(too_wide)})"


def caught_names(node: ast.expr) -> set[str]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return {getattr(part, "attr", getattr(part, "id", "")) for part in parts}


def raises_again(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def uses_error(handler: ast.ExceptHandler) -> bool:
    return handler.name is not None and any(
        isinstance(node, ast.Name) and node.id == handler.name for node in ast.walk(handler)
    )


def only_passes(handler: ast.ExceptHandler) -> bool:
    return all(
        isinstance(node, ast.Pass | ast.Continue)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in handler.body
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_lazy_root_resolves_each_name(package: str) -> None:
    """Every name of a package root can be imported from it, and an unknown one is an AttributeError."""
    root = importlib.import_module(package)
    assert set(root.__all__) <= set(dir(root))
    assert not [name for name in root.__all__ if getattr(root, name, None) is None]
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = root.no_such_name


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_root_loads_nothing_else(package: str) -> None:
    """A package root alone costs nothing: no module of a floor, no dependency."""
    done = run_python("-c", f"import sys, {package}; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = {
        name
        for name in done.stdout.split()
        if name.split(".")[0] in (*PACKAGES, "msgspec", "asyncio", "anyio")
    }
    assert loaded == {package}


def test_importing_the_recorder_loads_only_what_it_needs() -> None:
    """A program that only records doesn't pay for the command line, the readers or the store."""
    done = run_python("-c", "import sys; from rollout import RolloutRecorder; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & NOT_FOR_RECORDING


NOT_OURS = frozenset({".git", ".venv", ".hypothesis", "build", "dist", "node_modules", "__pycache__"})
# Written in two parts, so that this file doesn't hold them.
MACHINE_PATHS = re.compile(
    rb"(?<![\w.~-])/(?:work/" rb"(?:main|shared|\.library)|root/" rb"|tmp/(?:w|venv)\b)"
)


def test_no_file_names_a_path_of_one_machine() -> None:
    """What is in the repository works on any machine."""
    found = [
        f"{in_tree(path)}: {match[0].decode()}"
        for path in project_files()
        if (match := MACHINE_PATHS.search(path.read_bytes()))
    ]
    assert not found


def project_files() -> Iterator[Path]:
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            name for name in folders if name not in NOT_OURS and not name.endswith(("_cache", ".egg-info"))
        ]
        yield from (Path(folder, name) for name in files if not name.endswith(".pyc"))
