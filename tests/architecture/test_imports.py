"""A name is imported from the module that makes it, or from one that lists it in `__all__`."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from tests.support.repository import PACKAGE, modules


class Imported(Struct, frozen=True):
    """What one module imports from the package, and what it lists in `__all__`."""

    statements: list[ast.ImportFrom]
    listed: frozenset[str]

    @classmethod
    def of(cls, text: str) -> "Imported":
        tree = ast.parse(text)
        statements = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paddock")
        ]
        listed = frozenset(
            each.value
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and "__all__" in _targets(node)
            for each in ast.walk(node)
            if isinstance(each, ast.Constant)
        )
        return cls(statements, listed)

    def passed_on(self) -> dict[str, str]:
        """What the module does not list: name and origin."""
        return {
            alias.asname or alias.name: node.module or ""
            for node in self.statements
            for alias in node.names
            if (alias.asname or alias.name) not in self.listed
        }


def read_package(package: Path) -> dict[str, Imported]:
    """The imports of the package's modules, by their full names."""
    found: dict[str, Imported] = {}
    for path in modules(package):
        parts = ("paddock", *path.relative_to(package).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Imported.of(path.read_text(encoding="utf-8"))
    return found


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {each.id for each in targets if isinstance(each, ast.Name)}


def roundabout(package: Mapping[str, Imported]) -> Iterator[str]:
    """The imports that take a name from a module which only imports it itself."""
    passing = {name: module.passed_on() for name, module in package.items()}
    for name, module in package.items():
        for node in module.statements:
            for alias in node.names:
                origin = passing.get(node.module or "", {}).get(alias.name)
                if origin is not None:
                    yield f"{name}:{node.lineno}: {alias.name} of {node.module} is {origin}'s"


def test_a_name_is_imported_from_where_it_is_made():
    assert list(roundabout(read_package(PACKAGE))) == []


def test_a_name_that_comes_by_a_detour_is_found_and_a_listed_one_is_not():
    maker = "class Made: ...\n"
    hidden = "from paddock.maker import Made\n"
    listed = "from paddock.maker import Made\n__all__ = ['Made']\n"
    users = "from paddock.hidden import Made\nfrom paddock.listed import Made\n"
    texts = {"maker": maker, "hidden": hidden, "listed": listed, "user": users}
    package = {f"paddock.{name}": Imported.of(text) for name, text in texts.items()}

    assert list(roundabout(package)) == [
        "paddock.user:1: Made of paddock.hidden is paddock.maker's"
    ]
