"""What it costs before a command to find which closed names git tracks, of 100,000 entries.

    python bench/tracked.py

One secret in a hundred directories is tracked and stands there. The index is made by git, in
versions 2 and 4. CPU time of this process, for it shares the machine: the best of ROUNDS.
Musts: 5 ms where the index has not changed, 150 ms where it has.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paddock.sandbox.git.tracked import TrackedNames

ENTRIES = 100_000
SECRETS = 100
ROUNDS = 7
MUST_SAME_MS, MUST_CHANGED_MS = 5.0, 150.0


def make(root: Path, version: int) -> list[str]:
    """A repository of that many entries, and its closed names."""
    git = ["git", "-C", str(root), "-c", f"index.version={version}"]
    subprocess.run([*git, "init", "-q"], check=True)
    blob = subprocess.run(
        [*git, "hash-object", "-w", "--stdin"], input=b"x", capture_output=True, check=True
    ).stdout.decode()
    closed = [f"src/package{number:03}/.env" for number in range(SECRETS)]
    for name in closed:
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("x")
    names = [
        f"src/package{number % 997:03}/module_{number:06}.py" for number in range(ENTRIES - SECRETS)
    ]
    rows = "".join(f"100644 {blob.strip()} 0\t{name}\n" for name in [*names, *closed])
    subprocess.run([*git, "update-index", "--index-info"], input=rows.encode(), check=True)
    return closed


def spent_ms(names: TrackedNames, root: Path, root_fd: int, closed: list[str]) -> float:
    started = time.process_time_ns()
    found = names.find(root_fd, str(root), closed)
    spent = (time.process_time_ns() - started) / 1e6
    assert len(found.names) == SECRETS
    return spent


def main() -> int:
    good = True
    for version in (2, 4):
        with tempfile.TemporaryDirectory() as home:
            root = Path(home)
            closed = make(root, version)
            root_fd = os.open(root, os.O_PATH)
            names = TrackedNames()
            changed = min(spent_ms(TrackedNames(), root, root_fd, closed) for _ in range(ROUNDS))
            spent_ms(names, root, root_fd, closed)
            same = min(spent_ms(names, root, root_fd, closed) for _ in range(ROUNDS))
            os.close(root_fd)
        print(f"version {version}: {same:.2f} ms unchanged, {changed:.1f} ms changed")
        good = good and same <= MUST_SAME_MS and changed <= MUST_CHANGED_MS
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
