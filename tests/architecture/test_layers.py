"""Imports point down, and the pure layers are pure: the contracts in pyproject.toml hold."""

import os
import subprocess
import sys
import tomllib

from tests.support.repository import PACKAGE, ROOT

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]


def test_every_import_contract_holds():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c()",
            "--no-cache",
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken" in done.stdout


PURE = next(contract for contract in CONTRACTS if contract["id"] == "pure")["source_modules"]


def test_every_pure_folder_has_the_bans():
    folders = {name.split(".")[1] for name in PURE}

    without = {
        folder
        for folder in folders
        if 'extend = "../../../ruff-pure.toml"'
        not in (PACKAGE / folder / "ruff.toml").read_text(encoding="utf-8")
    }

    assert without == set()


def test_the_ledgers_format_counts_as_pure():
    assert {name for name in PURE if name.startswith("paddock.ledger")} == {"paddock.ledger.format"}
