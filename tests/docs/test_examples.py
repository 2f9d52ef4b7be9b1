"""The examples run, offline, and say what they did."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT

NATIVE_TOOLS = """offered: str_replace_based_edit_tool, bash, memory
ok: Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and \
node_modules:
ok: 1: def is_prime(n):
ok: Successfully replaced text at exactly one location.
error: Error: File not found
ok: File created successfully at: /memories/notes.md
def is_prime(n):
    for d in range(2, n):
        pass
"""


def test_an_agent_with_its_providers_own_tools(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "examples" / "native_tools.py")]
    variables = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(program, capture_output=True, text=True, check=False, env=variables)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, NATIVE_TOOLS, "")
