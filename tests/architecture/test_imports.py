"""A name is imported from the module that makes it, or from one that lists it in `__all__`."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.repository import PACKAGE, modules


def read_package(package: Path) -> dict[str, ast.Module]:
    """The trees of the package's modules, by their full names."""
    found: dict[str, ast.Module] = {}
    for path in modules(package):
        parts = ("paddock", *path.relative_to(package).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def passed_on(tree: ast.Module) -> dict[str, str]:
    """What a module got from another one of the package and does not list: name and origin."""
    listed = {
        each.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and "__all__" in _targets(node)
        for each in ast.walk(node)
        if isinstance(each, ast.Constant)
    }
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paddock")
        for alias in node.names
        if (alias.asname or alias.name) not in listed and node.module is not None
    }


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {each.id for each in targets if isinstance(each, ast.Name)}


def roundabout(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """The imports that take a name from a module which only imports it itself."""
    passing = {name: passed_on(tree) for name, tree in trees.items()}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.module not in passing:
                continue
            for alias in node.names:
                origin = passing[node.module].get(alias.name)
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
    trees = {f"paddock.{name}": ast.parse(text) for name, text in texts.items()}

    assert list(roundabout(trees)) == ["paddock.user:1: Made of paddock.hidden is paddock.maker's"]
