"""The tree in the docstring of paddock.errors is the tree of its classes."""

import ast
import inspect
import re

from msgspec import Struct

from paddock import errors
from tests.support.repository import PACKAGE, modules


class Node(Struct, frozen=True, dict=True):
    parent: str
    code: str


def documented() -> dict[str, Node]:
    """Name → its parent, and its code where the tree shows one."""
    found: dict[str, Node] = {}
    ancestors: list[tuple[int, str]] = []
    for line in inspect.getdoc(errors).splitlines():
        match = re.match(r"^([ │├└─]*)([A-Z]\w*Error)\b\s*(.*)$", line)
        if match is None:
            continue
        depth, name, rest = len(match[1]), match[2], match[3]
        while ancestors and ancestors[-1][0] >= depth:
            ancestors.pop()
        code = rest if re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", rest) else ""
        found[name] = Node(ancestors[-1][1] if ancestors else "Exception", code)
        ancestors.append((depth, name))
    return found


def defined() -> dict[str, type[errors.PaddockError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.PaddockError)
    }


def test_the_documented_tree_is_the_tree_of_the_classes():
    assert {name: node.parent for name, node in documented().items()} == {
        name: cls.__base__.__name__ for name, cls in defined().items()
    }


def test_the_documented_codes_are_the_codes_of_the_classes():
    with_code = {name: node.code for name, node in documented().items() if node.code}

    assert with_code == {name: defined()[name].code for name in with_code}


def test_every_leaf_that_a_model_sees_shows_its_code():
    leaves = {
        name
        for name, cls in defined().items()
        if issubclass(cls, errors.ToolError) and not cls.__subclasses__()
    }

    assert {name for name in leaves if not documented()[name].code} == set()


def test_no_class_elsewhere_has_a_code_of_its_own():
    # The list of codes is a promise: it has one place. Those of packages and of the ledger's
    # format are no part of what a call or a turn can end with.
    strangers = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if path != PACKAGE / "errors.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
        if "code" in {target for row in node.body for target in assigned(row)}
    }

    assert strangers == {"ledger/format/lines.py", "packages/rows.py"}


def assigned(row: ast.stmt) -> set[str]:
    """The names that a statement gives a literal."""
    if not isinstance(row, ast.Assign | ast.AnnAssign) or not isinstance(row.value, ast.Constant):
        return set()
    targets = row.targets if isinstance(row, ast.Assign) else [row.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_a_code_leads_back_to_its_class():
    leaves = {
        name: cls
        for name, cls in defined().items()
        if issubclass(cls, errors.ToolError) and not cls.__subclasses__()
    }

    assert {name: errors.TOOL_ERRORS[cls.code] for name, cls in leaves.items()} == leaves
