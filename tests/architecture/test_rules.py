"""The package keeps the rules that no linter knows."""

from tests.architecture.rules import RULES, Module
from tests.support.repository import PACKAGE, ROOT, modules


def test_the_package_keeps_every_rule():
    breaches = [
        f"src/paddock/{module.place}:{breach} ({rule.__name__})"
        for module in (Module.read(path, PACKAGE) for path in modules())
        for rule in RULES
        for breach in rule(module)
    ]

    assert breaches == []


def test_unit_tests_mirror_the_package():
    unit = ROOT / "tests" / "unit"
    folders = {path.relative_to(unit).as_posix() for path in unit.rglob("*") if path.is_dir()}
    folders = {folder for folder in folders if "__pycache__" not in folder}

    strangers = {
        folder
        for folder in folders
        if not ((PACKAGE / folder).is_dir() or (PACKAGE / f"{folder}.py").is_file())
    }

    assert strangers == set()


def test_every_folder_of_the_package_is_a_package():
    folders = {path.parent for path in modules()}

    assert {
        folder.relative_to(PACKAGE).as_posix()
        for folder in folders
        if not (folder / "__init__.py").exists()
    } == set()
