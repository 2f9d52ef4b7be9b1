"""An operator at a terminal-less console, with a home and a bare plane."""

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from paddock.plane.environment import RISKY_TOOLS_VARIABLE, Environment, read_environment
from tests.support.places import Ran, run_command

RISKY = {RISKY_TOOLS_VARIABLE: "1"}


class Operator(Struct, frozen=True, dict=True):
    """`base` holds a home and, once it was made, a plane."""

    base: Path

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def plane(self) -> Path:
        return self.base / "plane"

    @property
    def config(self) -> Path:
        return self.plane / "HOT" / "config" / "admin_config.json"

    def environment(self, variables: Mapping[str, str] | None = None) -> Environment:
        return read_environment({"HOME": str(self.home), **(variables or {})})

    def run(
        self, *arguments: str, variables: Mapping[str, str] | None = None, here: Path | None = None
    ) -> Ran:
        """One command; on the plane unless it says where."""
        everything = {"HOME": str(self.home), **(variables or {})}
        return run_command(*arguments, variables=everything, here=here or self.plane)

    def call(
        self,
        tool: str,
        *options: str,
        variables: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Ran:
        """One governed call."""
        return self.run("call", tool, json.dumps(arguments), *options, variables=variables)

    def make(self, *options: str) -> "Operator":
        """The plane, by `paddock init --bare`."""
        ran = self.run("init", "--bare", str(self.plane), *options, here=self.base)
        assert ran.status == 0, ran.err
        return self

    def entries(self, ledger: str, event_type: str) -> list[dict[str, Any]]:
        """The entries of one type, newest last."""
        ran = self.run("ledger", "query", "--ledger", ledger, "--type", event_type, "--json")
        return [json.loads(line) for line in ran.out.splitlines()]

    def change(self, **fields: Any) -> None:
        """Edit the configuration as an operator would."""
        found = json.loads(self.config.read_bytes())
        self.config.write_text(json.dumps(found | fields))

    def write(self, name: str, content: bytes) -> Path:
        path = self.plane / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


def operator_in(base: Path) -> Operator:
    """An operator with an empty home."""
    (base / "home").mkdir()
    return Operator(base)


@contextmanager
def operator_with_plane(*options: str) -> Generator[Operator]:
    """One whose plane `init --bare` made: once in this process, and put back for each who asks.

    Witness, approvals and agents know a plane by its place, so that a copy elsewhere is another
    one: all have the same place, one after the other.
    """
    base, kept = _made_once(options)
    shutil.copytree(kept, base, symlinks=True)
    try:
        yield Operator(base)
    finally:
        # Whatever was made unreadable in it: this knows how to take it away.
        with tempfile.TemporaryDirectory(dir=base.parent) as gone:
            base.rename(Path(gone) / base.name)


@functools.cache
def _made_once(options: tuple[str, ...]) -> tuple[Path, Path]:
    """Where such a plane with its operator's home stands, and how it was when it was made."""
    folder = tempfile.TemporaryDirectory(prefix="paddock-planes-")
    atexit.register(folder.cleanup)
    base, kept = Path(folder.name) / "base", Path(folder.name) / "kept"
    base.mkdir()
    operator_in(base).make(*options)
    base.rename(kept)
    return base, kept
