"""`init --bare` killed at every change that it makes: no plane yet or the whole one, never a part."""

import os
import sys
from pathlib import Path

from paddock.assembly.blueprint import bare_plane_blueprint
from paddock.plane.bare import make_bare_plane
from paddock.plane.discovery import is_bare_plane
from paddock.plane.environment import Environment, read_environment
from paddock.plane.registry import is_registered_bare_plane
from tests.support.disks import tree

BLUEPRINT = bare_plane_blueprint("production")
CHANGES = frozenset({"os.mkdir", "os.link", "os.rename", "os.remove"})
WRITING = os.O_WRONLY | os.O_CREAT
KILLED, DONE = 9, 0


def run_until(change: int, plane: Path, environment: Environment) -> int:
    """Make the plane in a child that ends, without a word, before its `change`th change."""
    child = os.fork()
    if child == 0:
        left = [change]

        def stop(event: str, arguments: tuple[object, ...]) -> None:
            is_change = event in CHANGES
            if event == "open" and isinstance(arguments[2], int):
                is_change = bool(arguments[2] & WRITING)
            if is_change:
                if left[0] == 0:
                    os._exit(KILLED)
                left[0] -= 1

        sys.addaudithook(stop)
        make_bare_plane(plane, BLUEPRINT, environment)
        os._exit(DONE)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def without_temporaries(plane: Path) -> dict[str, object]:
    return {name: found for name, found in tree(plane).items() if ".tmp" not in name}


def test_a_killed_init_leaves_no_plane_or_the_whole_one_and_the_next_completes_it(tmp_path):
    (tmp_path / "home").mkdir()
    whole: dict[str, object] | None = None
    change, seen_whole = 0, 0
    while True:
        base = tmp_path / str(change)
        (base / "home").mkdir(parents=True)
        environment = read_environment({"HOME": str(base / "home")})
        plane = base / "plane"
        code = run_until(change, plane, environment)
        if is_bare_plane(plane):
            seen_whole += 1
            assert is_registered_bare_plane(plane, environment)
            left = without_temporaries(plane)
        made = make_bare_plane(plane, BLUEPRINT, environment)
        after = without_temporaries(plane)
        if made.made == ():
            assert after == left
        assert made.registered
        whole = whole or after
        assert after == whole
        if code == DONE:
            break
        assert code == KILLED
        change += 1
    # Directories, three files with temporaries, the registration: each was a place to die.
    assert change > len(BLUEPRINT.directories) + 8
    assert 1 <= seen_whole < 5
