"""Each rule bites: a violation of it, planted in a copy of the package, is found.

All plants of one tool stand in one copy, so that the tool runs once. The rules
that the real package keeps are the other half, in test_layers.py and test_rules.py.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from tests.architecture import rules
from tests.architecture.rules import Module, Rule
from tests.support.repository import PACKAGE, ROOT


class Plant(Struct, frozen=True, dict=True):
    """A violation: where it is planted, what stands there, what the tool must say."""

    place: str
    text: str
    finding: str


LAYERS = (
    Plant(
        "values/p_clock.py",
        "import time\n",
        "paddock.values.p_clock -> time",
    ),
    Plant(
        "policy/p_lazy.py",
        "def run():\n    import subprocess\n    return subprocess\n",
        "paddock.policy.p_lazy -> subprocess",
    ),
    Plant(
        "text/p_files.py",
        "from pathlib import Path\n",
        "paddock.text.p_files -> pathlib",
    ),
    Plant(
        "ledger/format/lines.py",
        "import secrets\n",
        "paddock.ledger.format.lines -> secrets",
    ),
    Plant(
        "tools/p_up.py",
        "import paddock.apps.cli\n",
        "paddock.tools.p_up -> paddock.apps.cli",
    ),
    Plant(
        "policy/p_up.py",
        "from paddock import workspace\n",
        "paddock.policy.p_up -> paddock.workspace",
    ),
    Plant(
        "__init__.py",
        "import paddock.runtime\n",
        "paddock -> paddock.runtime",
    ),
    Plant(
        "values/p_root.py",
        "import paddock\n",
        "paddock.values.p_root -> paddock (",
    ),
    Plant(
        "errors.py",
        "import paddock.values.calls\n",
        "paddock.errors -> paddock.values.calls",
    ),
    Plant(
        "p_helpers/__init__.py",
        "",
        "p_helpers",
    ),
    Plant(
        "kernel/p_up.py",
        "import paddock.values.calls\n",
        "paddock.kernel.p_up -> paddock.values.calls",
    ),
    Plant(
        "tools/p_kernel.py",
        "import paddock.kernel\n",
        "paddock.tools.p_kernel -> paddock.kernel",
    ),
    Plant(
        "workspace/p_ctypes.py",
        "import ctypes\n",
        "paddock.workspace.p_ctypes -> ctypes",
    ),
    Plant(
        "apps/p_hook/__init__.py",
        "import paddock.apps.cli\n",
        "paddock.apps.p_hook -> paddock.apps.cli",
    ),
    Plant(
        "runtime/p_vendor.py",
        "import anthropic\n",
        "paddock.runtime.p_vendor -> anthropic",
    ),
    Plant(
        "runtime/p_http.py",
        "import httpx2\n",
        "paddock.runtime.p_http -> httpx2",
    ),
    Plant(
        "integrations/p_framework.py",
        "import deepagents\n",
        "paddock.integrations.p_framework -> deepagents",
    ),
    Plant(
        "apps/p_integration.py",
        "import paddock.integrations\n",
        "paddock.apps.p_integration -> paddock.integrations",
    ),
    Plant(
        "sandbox/p_tls.py",
        "import ssl\n",
        "paddock.sandbox.p_tls -> ssl",
    ),
    Plant(
        "runtime/p_loop.py",
        "import asyncio\n",
        "paddock.runtime.p_loop -> asyncio",
    ),
    Plant(
        "assembly/p_database.py",
        "import psycopg\n",
        "paddock.assembly.p_database -> psycopg",
    ),
    Plant(
        "assembly/p_collector.py",
        "import paddock.collector.chains\n",
        "paddock.assembly.p_collector -> paddock.collector",
    ),
    Plant(
        "runtime/p_fakes.py",
        "import paddock.testing\n",
        "paddock.runtime.p_fakes -> paddock.testing",
    ),
)

LINT = (
    Plant(
        "values/p_now.py", "import datetime\nNOW = datetime.datetime.now(datetime.UTC)\n", "TID251"
    ),
    Plant("text/p_out.py", "import sys\nsys.stdout.write('x')\n", "TID251"),
    Plant("policy/p_path.py", "import os.path\n", "TID251"),
    Plant("ledger/format/p_planted.py", "import os\n", "TID251"),
    Plant("text/p_open.py", "open('x').close()\n", "PTH123"),
    Plant("runtime/p_print.py", "print('x')\n", "T201"),
    Plant("tools/p_broad.py", "try:\n    x = 1\nexcept Exception:\n    x = 2\n", "BLE001"),
    Plant("tools/p_module.py", "x = 1\n", "D100"),
    Plant("runtime/p_naive.py", "import datetime\nNOW = datetime.datetime.now()\n", "DTZ005"),
    Plant("workspace/p_real.py", "import os\nx = os.path.realpath('x')\n", "TID251"),
    Plant("tools/p_pickle.py", "import pickle\n", "TID251"),
    Plant("runtime/p_shell.py", "import os\nos.system('x')\n", "S605"),
    Plant("tools/p_relative.py", "from . import spec\n", "TID252"),
    Plant("tools/p_stale.py", "x = 1  # noqa: S603\n", "RUF100"),
)

OWN: tuple[tuple[Rule, Plant], ...] = (
    (rules.sizes, Plant("tools/p.py", "x = 1\n" * 601, "601 lines")),
    (rules.sizes, Plant("tools/p.py", "def f():\n" + "    x = 1\n" * 70, "71 lines in f")),
    (
        rules.swallowed_exceptions,
        Plant("tools/p.py", "try:\n    f()\nexcept OSError:\n    pass\n", "swallowed"),
    ),
    (
        rules.swallowed_exceptions,
        Plant("tools/p.py", "try:\n    f()\nexcept OSError:\n    ...\n", "swallowed"),
    ),
    (
        rules.broad_handlers,
        Plant("tools/p.py", "try:\n    f()\nexcept Exception as e:\n    g(e)\n", "broad"),
    ),
    (rules.broad_handlers, Plant("tools/p.py", "try:\n    f()\nexcept:\n    g()\n", "broad")),
    (
        rules.broad_handlers,
        Plant("tools/p.py", "try:\n    f()\nexcept (A, BaseException):\n    g()\n", "broad"),
    ),
    (
        rules.broad_handlers,
        Plant("tools/p.py", "with contextlib.suppress(Exception):\n    f()\n", "broad"),
    ),
    (rules.environment, Plant("workspace/p.py", "import os\nx = os.environ\n", "os.environ")),
    (rules.environment, Plant("tools/p.py", "from os import getenv\n", "os.getenv")),
    (rules.terminal, Plant("runtime/p.py", "print('x')\n", "print()")),
    (rules.terminal, Plant("plane/p.py", "import sys\nsys.exit(1)\n", "sys.exit()")),
    (rules.terminal, Plant("tools/p.py", "raise SystemExit\n", "SystemExit")),
    (rules.pure_calls, Plant("text/p.py", "x = open('f')\n", "open in a pure module")),
    (
        rules.pure_calls,
        Plant(
            "ledger/format/p_planted.py", "x = __import__('os')\n", "__import__ in a pure module"
        ),
    ),
    (rules.pure_calls, Plant("policy/p.py", "x = map(eval, ())\n", "eval in a pure module")),
    (rules.exemptions, Plant("tools/p.py", "x = 1  # noqa: S603\n", "exemption")),
    (rules.exemptions, Plant("tools/p.py", "x = 1  # type: ignore\n", "exemption")),
    (rules.exemptions, Plant("tools/p.py", "x = 1  # pyright: ignore[reportAny]\n", "exemption")),
    (rules.docstrings, Plant("tools/p.py", '"""One.\n\n# Threat: x\n"""\n', "3: a comment's mark")),
    (
        rules.docstrings,
        Plant("tools/p.py", 'def f():\n    """One.\n\n    Threat: x\n    # y\n    """\n', "5: "),
    ),
)

KEPT: tuple[tuple[Rule, str, str], ...] = (
    (rules.sizes, "tools/p.py", "x = 1\n" * 600),
    (rules.sizes, "tools/p.py", 'def f():\n    """' + "x\n" * 90 + '"""\n' + "    x = 1\n" * 69),
    (rules.swallowed_exceptions, "tools/p.py", "try:\n    f()\nexcept OSError:\n    g()\n"),
    (
        rules.broad_handlers,
        "tools/p.py",
        "try:\n    f()\nexcept BaseException:\n    g()\n    raise\n",
    ),
    (rules.broad_handlers, "runtime/dispatch.py", "try:\n    f()\nexcept Exception:\n    g()\n"),
    (rules.environment, "plane/p.py", "import os\nx = os.environ\n"),
    (rules.terminal, "apps/cli/p.py", "print('x')\n"),
    (rules.pure_calls, "plane/p.py", "x = open('f')\n"),
    (rules.pure_calls, "values/p.py", "class C:\n    input: int = 0\n"),
    (rules.exemptions, "tools/p.py", "x = 1  # noqa: S603  # an argument list, no shell\n"),
    (rules.docstrings, "tools/p.py", '"""One.\n\nThreat: x\n    a = 1  # y\n"""\n# Threat: z\n'),
)


def planted(directory: Path, plants: tuple[Plant, ...]) -> Path:
    """A copy of the package, with its checkers' configuration and the plants."""
    for name in ("pyproject.toml", "ruff-pure.toml"):
        shutil.copy(ROOT / name, directory / name)
    package = directory / "src" / "paddock"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for plant in plants:
        path = package / plant.place
        for parent in reversed(path.relative_to(package).parents):
            (package / parent).mkdir(exist_ok=True)
            (package / parent / "__init__.py").touch()
        with path.open("a", encoding="utf-8") as file:
            file.write(plant.text)
    return directory


def output_of(arguments: list[str], directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(directory / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def layers_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = planted(tmp_path_factory.mktemp("layers"), LAYERS)
    return output_of(
        ["-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        directory,
    )


@pytest.fixture(scope="module")
def lint_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = planted(tmp_path_factory.mktemp("lint"), LINT)
    return output_of(
        ["-m", "ruff", "check", "--no-cache", "--output-format", "concise", "."], directory
    )


@pytest.mark.parametrize("plant", LAYERS, ids=lambda plant: plant.place)
def test_import_contracts_find(plant: Plant, layers_output: str):
    assert plant.finding in layers_output


@pytest.mark.parametrize("plant", LINT, ids=lambda plant: plant.place)
def test_ruff_finds(plant: Plant, lint_output: str):
    findings = [
        line for line in lint_output.splitlines() if line.startswith(f"src/paddock/{plant.place}:")
    ]

    assert [line for line in findings if plant.finding in line] != []


@pytest.mark.parametrize(
    ("rule", "plant"), OWN, ids=[f"{rule.__name__}-{n}" for n, (rule, _) in enumerate(OWN)]
)
def test_our_own_rule_finds(rule: Rule, plant: Plant, tmp_path: Path):
    breaches = list(rule(_module(tmp_path, plant.place, plant.text)))

    assert [breach for breach in breaches if plant.finding in breach] != []


@pytest.mark.parametrize(
    ("rule", "place", "text"),
    KEPT,
    ids=[f"{rule.__name__}-{n}" for n, (rule, *_) in enumerate(KEPT)],
)
def test_our_own_rule_lets_pass(rule: Rule, place: str, text: str, tmp_path: Path):
    assert list(rule(_module(tmp_path, place, text))) == []


def _module(package: Path, place: str, text: str) -> Module:
    path = package / place
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return Module.read(path, package)
