"""The machine that measures, as it tells itself."""

import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path

PROGRAMS = ("rg", "bwrap", "git", "bash", "node", "valgrind")


def describe_machine() -> str:
    """Processor, kernel, versions and load."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {model}, {os.cpu_count()} cores, "
        f"Linux {platform.release()}, {_said('stat', '-f', '-c', '%T', '.')}, "
        f"Python {platform.python_version()}, load at the start {os.getloadavg()[0]:.1f}"
    )


def describe_programs() -> str:
    """What stands beside us, with versions; and what of it is missing."""
    return ", ".join(_versioned(name) for name in PROGRAMS)


def _versioned(name: str) -> str:
    if shutil.which(name) is None:
        return f"no {name}"
    version = re.search(r"\d+(\.\d+)+", _said(name, "--version"))
    return f"{name} {version[0]}" if version else name


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
