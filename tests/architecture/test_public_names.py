"""What `import paddock` and `paddock` promise: names that somebody may have written down.

`public_names.txt` holds all of them. A name more is a promise more, and a name less breaks
somebody's program: change the list in the same commit, on purpose. Public in a folder is what
its `__all__` names, and has a docstring; everything else has one where it needs one.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import paddock
from paddock.values import entries
from tests.support.repository import ROOT

SNAPSHOT = Path(__file__).with_name("public_names.txt")
REFERENCE = ROOT / "docs" / "reference"


def sections(page: str) -> Iterator[tuple[str, str]]:
    """The headings of a page of the reference, each with the text below it."""
    parts = re.split(r"(?m)^##+ (.+)$", (REFERENCE / page).read_text(encoding="utf-8"))
    yield from zip(parts[1::2], parts[2::2], strict=True)


def promised() -> Iterator[str]:
    for command, text in sections("cli.md"):
        yield f"command {command}"
        for option in re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", text):
            yield f"command {command} {option}"
    for tool, text in sections("tools.md"):
        yield f"tool {tool}"
        for argument in re.findall(r"(?m)^\| `(\w+)` \|", text):
            yield f"tool {tool} {argument}"
    codes = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    for code in re.findall(r"(?m)^\| `([\w.]+)` \|", codes):
        yield f"code {code}"
    for name in entries.EVENT_TYPES:
        yield f"event {name}"
    for name, _ in sections("python.md"):
        yield f"python {name}"
    for name in paddock.__all__:
        yield f"python {name}"


def test_the_public_names_are_those_of_the_list():
    listed = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    found = sorted(set(promised()))

    assert len(found) > 400
    assert [name for name in listed if name not in found] == [], "gone"
    assert [name for name in found if name not in listed] == [], "new"
    assert listed == found


def test_there_are_at_most_forty_five_public_names_in_order_and_all_exist():
    names = list(getattr(paddock, "__all__", []))

    assert len(names) <= 45
    assert names == sorted(set(names))
    assert [name for name in names if not hasattr(paddock, name)] == []


def test_what_a_folder_exports_has_a_docstring():
    source = Path(paddock.__file__).parent
    folders = [
        importlib.import_module(".".join(("paddock", *made.parent.relative_to(source).parts)))
        for made in source.rglob("__init__.py")
        if "__all__" in made.read_text(encoding="utf-8")
    ]
    exported = [getattr(folder, name) for folder in folders for name in folder.__all__]
    callables = [each for each in exported if inspect.isclass(each) or inspect.isfunction(each)]

    assert len(callables) > 40
    assert [each.__qualname__ for each in callables if not inspect.getdoc(each)] == []
