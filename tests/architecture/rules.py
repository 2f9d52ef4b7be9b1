"""Rules of this house that no linter knows, each as a function from a module to its breaches.

A breach is `line: what is wrong`. The tests apply the rules to the package and
to planted violations.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

MODULE_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 70

BROAD_DOORS: Final = frozenset(
    {
        # A defect of ours becomes an `internal` result with an id, instead of a traceback.
        "apps/cli/main.py",
        "apps/mcp/server.py",
        "runtime/dispatch.py",
        # A client's hook: whatever goes wrong is a refusal.
        "apps/hook/command.py",
        "apps/hook/full.py",
        "apps/hook/wrapped.py",
        "apps/hook/launch.py",
        "apps/hook/lean/start.py",
        # There, the order fails with an id, and its turn is recorded.
        "agent/executor.py",
        # Whoever shows a turn: what it raises is handed on when the turn is on record.
        "agent/events.py",
        # The embedding program's own function: whatever it raises is a no.
        "runtime/approvals.py",
        # Its own tool: whatever it raises is that tool's failure, and no defect of ours.
        "runtime/own_tools.py",
        # A package's module: whatever it raises, there is no such tool.
        "assembly/extensions.py",
    }
)
"""The modules where an `except Exception` may stand."""

ENVIRONMENT_FOLDERS: Final = frozenset({"plane", "apps"})
TERMINAL_FOLDERS: Final = frozenset({"apps"})
PURE: Final = re.compile(r"(values|text|policy)/|ledger/format/")
EFFECTFUL_BUILTINS: Final = frozenset(
    {"open", "print", "input", "breakpoint", "exec", "eval", "compile", "__import__"}
)
ENVIRONMENT_NAMES: Final = frozenset(
    {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
)


class Module(Struct, frozen=True):
    """One file of the package: its place below `paddock/`, its text, its tree."""

    place: str
    text: str
    tree: ast.Module

    @classmethod
    def read(cls, path: Path, package: Path) -> "Module":
        text = path.read_text(encoding="utf-8")
        return cls(path.relative_to(package).as_posix(), text, ast.parse(text))

    @property
    def folder(self) -> str:
        """The first component: the layer."""
        return PurePosixPath(self.place).parts[0]


Rule = Callable[[Module], Iterator[str]]


def sizes(module: Module) -> Iterator[str]:
    """A module has 600 lines at most, a function 70 without its docstring."""
    lines = module.text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"1: {lines} lines in a module ({MODULE_LINES_MAX} at most)"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            size -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
        if size > FUNCTION_LINES_MAX:
            yield f"{node.lineno}: {size} lines in {node.name} ({FUNCTION_LINES_MAX} at most)"


def swallowed_exceptions(module: Module) -> Iterator[str]:
    """A handler does something, or the exception goes on."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and all(map(_does_nothing, node.body)):
            yield f"{node.lineno}: an exception is swallowed"


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def broad_handlers(module: Module) -> Iterator[str]:
    """Only the doors catch everything; elsewhere a broad handler cleans up and raises again."""
    if module.place in BROAD_DOORS:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node):
            yield f"{node.lineno}: a broad handler outside the doors"
        if (
            isinstance(node, ast.Call)
            and _name(node.func) == "suppress"
            and any(map(_is_broad, node.args))
        ):
            yield f"{node.lineno}: a broad suppress"


def _is_broad(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    if isinstance(caught, ast.Tuple):
        return any(map(_is_broad, caught.elts))
    return _name(caught) in {"Exception", "BaseException"}


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def environment(module: Module) -> Iterator[str]:
    """The environment is read in plane/ and apps/; everywhere else it comes in as an argument."""
    if module.folder in ENVIRONMENT_FOLDERS:
        return
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ENVIRONMENT_NAMES
            and _name(node.value) == "os"
        ):
            yield f"{node.lineno}: os.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            for alias in node.names:
                if alias.name in ENVIRONMENT_NAMES:
                    yield f"{node.lineno}: os.{alias.name}"


def terminal(module: Module) -> Iterator[str]:
    """Only apps/ print and exit."""
    if module.folder in TERMINAL_FOLDERS:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in {"print", "input", "sys.exit", "os._exit", "exit", "quit", "SystemExit"}:
                yield f"{node.lineno}: {called}()"
        if isinstance(node, ast.Raise) and node.exc is not None and _name(node.exc) == "SystemExit":
            yield f"{node.lineno}: SystemExit"


def pure_calls(module: Module) -> Iterator[str]:
    """A pure module uses none of the builtins that reach outside it."""
    if not PURE.match(module.place):
        return
    for node in ast.walk(module.tree):
        # A field may have such a name; what reaches outside is the builtin that is read.
        is_read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        if is_read and node.id in EFFECTFUL_BUILTINS:
            yield f"{node.lineno}: {node.id} in a pure module"


def exemptions(module: Module) -> Iterator[str]:
    """An exemption from a check says which check, and why."""
    for number, line in enumerate(module.text.splitlines(), start=1):
        found = re.search(r"#\s*(noqa|type:\s*ignore|pyright:\s*ignore|pragma:)(.*)", line)
        if found is None:
            continue
        rest = re.sub(r"^:?\s*(\[[\w, -]+\]|[A-Z]+\d+(\s*,\s*[A-Z]+\d+)*)", "", found[2])
        if rest == found[2] or not re.search(r"\w+\W+\w+", rest):
            yield f"{number}: an exemption without a code and a reason"


def docstrings(module: Module) -> Iterator[str]:
    """A docstring is prose: no line of it begins with a comment's mark."""
    for node in ast.walk(module.tree):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        text = node.value.value
        if not isinstance(text, str):
            continue
        for number, line in enumerate(text.split("\n"), start=node.lineno):
            if line.lstrip().startswith("#"):
                yield f"{number}: a comment's mark in a docstring"


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


RULES: Final[tuple[Rule, ...]] = (
    sizes,
    swallowed_exceptions,
    broad_handlers,
    environment,
    terminal,
    pure_calls,
    exemptions,
    docstrings,
)
