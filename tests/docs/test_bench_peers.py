"""What `make bench` says of the peers: what their programs print is what the budgets read."""

import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

sys.path.append(str(ROOT / "bench"))

import budget
import compare
import growth
import hook
import mcp_peers
import spawn_peers
from peers.installing import Unavailable, printed_by
from peers.sandboxes import Spawned, try_out

ROW = budget.Budget("a row", "x.py", r"ratio ([\d.]+)", must=1.5, moonshot=1.1, unless="not here")
FENCE = ("sh", "-c", 'case "$*" in *escaped*) exit 0 ;; esac; exec "$@"', "sh")


def read(bench: str, printed: str) -> dict[str, float | None]:
    """The figures that the budgets of a benchmark find."""
    rows = [row for row in budget.read_budgets() if row.bench == bench]
    return {kept.budget.area: kept.found for kept in budget.compare(rows, {bench: printed})}


# --- who is not here --------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "said", "holds"),
    [
        ("not here: somebody", "not here", True),
        ("ratio 1.2\nnot here: somebody else", "kept", True),
        ("ratio 1.6", "OVER", False),
        ("it broke", "NOT MEASURED", False),
    ],
)
def test_nothing_is_promised_beside_a_peer_that_is_not_here(printed: str, said: str, holds: bool):
    (kept,) = budget.compare([ROW], {"x.py": printed})

    assert (kept.said, kept.holds) == (said, holds)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("no-such-program-here",), "there is no program no-such-program-here"),
        (("sh", "-c", "echo first >&2; echo why >&2; exit 3"), "failed: why"),
        (("false",), "false failed: it said nothing"),
    ],
)
def test_what_cannot_be_had_says_why(command: tuple[str, ...], reason: str):
    with pytest.raises(Unavailable, match=reason):
        printed_by(*command)


def test_what_can_be_had_is_had():
    assert printed_by("echo", "here") == "here\n"


# --- which sandbox counts -----------------------------------------------------------


def test_a_sandbox_that_lets_nothing_out_is_counted(tmp_path: Path):
    workspace, outside = tmp_path / "work", tmp_path / "outside"
    workspace.mkdir()

    try_out(Spawned("a fence", workspace, FENCE), outside)

    assert (workspace / "made.txt").read_text() == "first\n"
    assert not outside.exists()


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ((), "wrote outside"),
        (("true",), "not in the workspace"),
        (("sh", "-c", "echo no sandbox for you >&2; exit 9"), "ended with 9: no sandbox for you"),
    ],
)
def test_one_that_does_not_confine_or_run_is_not(
    tmp_path: Path, before: tuple[str, ...], reason: str
):
    with pytest.raises(Unavailable, match=reason):
        try_out(Spawned("no fence", tmp_path, before), tmp_path / "outside")


# --- what is printed is what is read ----------------------------------------------------


def test_the_budgets_read_the_commands_in_sandboxes():
    took = {
        spawn_peers.BARE: [1.0],
        spawn_peers.WARM: [2.0],
        spawn_peers.WHOLE: [5.0],
        "bubblewrap": [4.0],
        "npm sandbox runtime, library": [50.0],
        "npm sandbox runtime, srt": [400.0],
        "Codex": [20.0],
    }
    writing = {name: [10 * each for each in ms] for name, ms in took.items()}
    del writing[spawn_peers.WARM]
    writing[spawn_peers.WHOLE] = [100.0]
    printed = [*spawn_peers.show("true", took), *spawn_peers.show("write", writing)]

    assert read("spawn_peers.py", "\n".join(printed)) == {
        "a confined command, warm / bubblewrap": 0.5,
        "run_shell, recorded / the npm sandbox runtime's library": 0.1,
        "run_shell writing a file, kept / the npm sandbox runtime's library": 0.2,
        "run_shell, recorded / Codex's sandbox": 0.25,
    }


def test_the_budgets_read_the_servers(capsys: pytest.CaptureFixture[str]):
    found = {
        "Paddock": mcp_peers.Found([900.0], [2e3, 2e3], [2e3], [3e3]),
        "raw loop": mcp_peers.Found([10.0], [1e2, 1e2], [1e2], [10.0]),
        "SDK": mcp_peers.Found([600.0], [1e3, 1e3], [1e3], [1e3]),
    }
    mcp_peers.show(found)

    assert read("mcp_peers.py", capsys.readouterr().out) == {
        "an MCP read, recorded, p50 / the SDK's server that only reads": 2.0,
        "32 MCP reads in flight, recorded / the SDK's server that only reads": 3.0,
        "booting the MCP server to a first read / the SDK's server": 1.5,
    }


def test_the_budgets_read_what_grows():
    entries, _, _, lines = growth.subjects(is_largest=False)
    wrote = {"ledger, an entry, durable": 9.0, "ledger, an entry, its sync apart": 2.0}
    printed = [
        growth.show(entries, [wrote, {name: 3 * ms for name, ms in wrote.items()}]),
        growth.show(lines, [{"view, again": 1.0}, {"view, again": 2.0}, {"view, again": 4.0}]),
    ]

    assert read("growth.py", "\n\n".join(printed)) == {
        "an entry, its sync apart, to a ledger of 100,000 / of 1,000": 3.0,
        "a view again of 10,000,000 lines / of 1,000": 4.0,
    }


def test_the_budgets_read_the_share_of_the_quickest_other_tools():
    search, read_deep = compare.WORK[1], compare.WORK[3]
    printed = "\n".join(
        [
            compare.share(search, 30.0, [None, 60.0, 40.0]),
            compare.share(read_deep, 10.0, [100.0, 200.0]),
            compare.share(compare.WORK[0], 10.0, [None, None]),
        ]
    )

    assert read("compare.py --speed", printed) == {
        "search 5,000 files, recorded / the quickest other tools": 0.75,
        "20 lines at line 900,000, recorded / the quickest other tools": 0.1,
        "find one name in 5,000 files, recorded / the quickest other tools": None,
        "list 1,000 names, recorded / the quickest other tools": None,
        "edit of 10 kB, kept and recorded / the quickest other tools": None,
    }


def test_the_budgets_read_the_hook_as_it_is_installed(capsys: pytest.CaptureFixture[str]):
    names = ("as installed, 3.11.2", "its own Python 3.11.7")
    pythons = [hook.Interpreter(name, hook.Program(name, "launch.py")) for name in names]
    costs = {
        "hook, as installed, 3.11.2": [hook.Cost(8.0, 1.0)],
        "alone, as installed, 3.11.2": [hook.Cost(5.0, 1.0)],
        "hook, its own Python 3.11.7": [hook.Cost(30.0, 1.0)],
        "alone, its own Python 3.11.7": [hook.Cost(9.0, 1.0)],
    }
    is_met = hook.compare(hook.CASES[0], costs, pythons)

    assert is_met
    assert read("hook.py", capsys.readouterr().out) == {
        "a hook decision with its record / the interpreter alone": 1.6,
        "a hook decision, instructions / the interpreter alone": None,
    }
