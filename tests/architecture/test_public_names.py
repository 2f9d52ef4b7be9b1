"""What `import paddock` promises: few names, each on purpose; and public names have docstrings.

Public is what the `__all__` of a folder names. Everything else has a docstring where it needs one.
"""

import importlib
import inspect
from pathlib import Path

import paddock

SNAPSHOT = Path(__file__).with_name("public_names.txt")


def test_the_public_names_are_those_of_the_snapshot():
    # A name more is a promise more: change the snapshot in the same commit, on purpose.
    assert list(getattr(paddock, "__all__", [])) == SNAPSHOT.read_text(encoding="utf-8").split()


def test_there_are_at_most_twenty_five_public_names_in_order_and_all_exist():
    names = list(getattr(paddock, "__all__", []))

    assert len(names) <= 25
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
