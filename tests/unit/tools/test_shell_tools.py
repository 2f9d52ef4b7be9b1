"""The shell tools over a shell that runs nothing: what they hand on, and what they answer."""

from pathlib import Path

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    InvalidArgumentsError,
    PathNotADirectoryError,
    PathTraversalError,
    SandboxUnavailableError,
)
from paddock.policy.settings import ShellLimits
from paddock.sandbox.values import (
    CommandWatch,
    Ending,
    Enforced,
    Enforcement,
    KeptOutput,
    PreparedLine,
    RefusedChange,
    SandboxPlan,
    ShellLine,
    ShellOutcome,
    Stream,
    Warned,
)
from paddock.tools.effects import changes_from_bytes
from paddock.tools.shell import RUN_SHELL, RUN_SHELL_DEV
from paddock.tools.spec import Ports, RefusedPath, StoppedCallError
from paddock.values.calls import LeftEffect
from paddock.workspace import EntryKind, Workspace
from paddock.workspace.changes import ChangedPath, EntryState
from paddock.workspace.paths import unchecked_path as at
from tests.support.shown import Shows

PLAN = SandboxPlan(
    *("/ws", (), (), (), "loopback", "safe", "each", "required"),
    limits=ShellLimits(),
    environment=(),
    policy_digest="",
)
FULL = Enforced("stage", Enforcement.FULL)
OUTCOME = ShellOutcome("bash", Ending.EXITED, 0, Stream("out\n"), Stream(""), 0.1234, FULL)


class TestShell(Struct, dict=True):
    """Says what it was told to say, and remembers what it was asked."""

    __test__ = False
    outcome: ShellOutcome = OUTCOME
    lines: list[ShellLine] = field(default_factory=list)
    kept: list[bytes] = field(default_factory=list)

    def prepare(self, line: ShellLine) -> PreparedLine:
        self.lines.append(line)
        return PreparedLine(line, PLAN, FULL, "/bin/bash", "sha256:plan")

    def asks_about_diff(self, prepared: PreparedLine) -> bool:
        return True

    def run(self, prepared: PreparedLine, watch: CommandWatch) -> ShellOutcome:
        return self.outcome

    def stage(self, prepared: PreparedLine, watch: CommandWatch) -> "HeldOutcome":
        return HeldOutcome(self.outcome)

    def keep(self, content: bytes) -> str:
        self.kept.append(content)
        return "sha256:kept"


class HeldOutcome(Struct, dict=True):
    outcome: ShellOutcome
    digest: str = "sha256:diff"
    diff: str = "the difference"
    warnings: tuple[str, ...] = ()
    is_closed: bool = False

    def commit(self) -> ShellOutcome:
        return self.outcome

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(params=[RUN_SHELL, RUN_SHELL_DEV])
def tool(request: pytest.FixtureRequest):
    return request.param


@pytest.fixture
def ports(tmp_path: Path):
    (tmp_path / "sub/deep").mkdir(parents=True)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "file").write_text("x")
    shell = TestShell()
    with Workspace.open(str(tmp_path)) as workspace:
        yield Ports(workspace, Shows(frozenset({"hidden"})), shell=lambda: shell)


def plan_of(tool, ports: Ports, **arguments):
    bound, _ = tool.binder.bind({"command": "true", **arguments})
    return tool.handler.resolve(bound, ports)


def run(tool, ports: Ports, outcome: ShellOutcome = OUTCOME, **arguments):
    ports.shell().outcome = outcome
    return tool.handler.run(plan_of(tool, ports, **arguments), ports)


def test_a_plan_is_the_line_and_what_it_would_be_judged_as(tool, ports):
    plan = plan_of(tool, ports, command="git status", timeout=7, cwd="sub")

    assert plan.line == ShellLine("git status", "sub", 7, is_dry_run=False)
    assert list(map(str, plan.actions)) == ["tool:shell:run git status"]
    assert ports.shell().lines == []


def test_redirections_are_judged_from_where_the_line_runs(tool, ports):
    line = "echo 1 > x; echo 2 > ../y; echo 3 > ../../z; echo 4 > x"
    plan = plan_of(tool, ports, command=line, cwd="sub/deep")

    assert list(map(str, plan.actions))[1:] == [
        "tool:file:create sub/deep/x",
        "tool:file:create sub/y",
        "tool:file:create z",
    ]
    at_root = plan_of(tool, ports, command=line)
    assert len(at_root.actions) == 1


def test_a_redirection_to_a_place_outside_is_no_path_below_where_the_line_runs(tool, ports):
    plan = plan_of(tool, ports, command="echo 1 > /tmp/x; echo 2 > ~/y; echo 3 > z", cwd="sub")

    assert list(map(str, plan.actions))[1:] == ["tool:file:create sub/z"]


@pytest.mark.parametrize(
    ("cwd", "error", "message"),
    [
        ("..", PathTraversalError, "cwd: path escapes root"),
        ("file", PathNotADirectoryError, "cwd is not a directory: 'file'"),
        ("file/", PathNotADirectoryError, "cwd is not a directory: 'file/'"),
        ("none", PathNotADirectoryError, "cwd is not a directory: 'none'"),
        ("hidden", PathNotADirectoryError, "cwd is not a directory: 'hidden'"),
    ],
)
def test_a_directory_that_is_none_is_refused(tool, ports, cwd, error, message):
    with pytest.raises(error) as caught:
        plan_of(tool, ports, cwd=cwd)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("letter", ["x", "字"])
def test_a_command_that_no_shell_can_be_given_is_refused_before_anybody_is_asked(
    tool, ports, letter
):
    most = limits.command_bytes_max // len(letter.encode())
    assert plan_of(tool, ports, command=letter * most).line.text == letter * most
    with pytest.raises(InvalidArgumentsError, match=r"command has \d+ bytes, 131071 are allowed"):
        plan_of(tool, ports, command=letter * (most + 1))


def test_an_approval_is_bound_to_the_plan_or_to_the_difference(tool, ports):
    handler = tool.handler
    plan, digest = handler.pin(plan_of(tool, ports), ports)
    assert digest == "sha256:plan"
    assert handler.asks_about_effect(plan, ports)
    dry, _ = handler.pin(plan_of(tool, ports, dry_run=True), ports)
    assert not handler.asks_about_effect(dry, ports)

    staged, held = handler.stage(plan, ports)
    assert (held.digest, held.diff) == ("sha256:diff", "the difference")
    assert handler.run(staged, ports).details["stdout"] == "out\n"
    handler.release(staged)
    assert held.is_closed


def test_the_fields_of_a_result(tool, ports):
    output = run(tool, ports)

    assert output.details == {
        "exit_code": 0,
        "stdout": "out\n",
        "stderr": "",
        "timed_out": False,
        "duration_seconds": 0.123,
        "files_changed": [],
        "changes_refused": [],
        "sandbox": {"backend": "stage", "enforcement": "full", "gaps": []},
        "shell": "bash",
    }
    assert output.content == (
        "exit code 0 (bash, 0.12 s)\nfiles changed: none\nsandbox: stage, full\n"
        "stdout: 1 line\nout\nstderr: empty"
    )
    assert set(output.details) <= set(tool.spec.output_schema["properties"])


def state(version: str | None = "sha256:1", kind: EntryKind = EntryKind.FILE) -> EntryState:
    return EntryState(kind, 0o644, version)


def test_everything_there_is_to_say_is_said_before_what_was_printed(tool, ports):
    kept = KeptOutput("sha256:log", 10, 20)
    outcome = replace(
        OUTCOME,
        ending=Ending.TIMED_OUT,
        exit_code=-1,
        stdout=Stream("files changed: 9\n", kept),
        stderr=Stream("Command timed out after 3 seconds"),
        enforced=Enforced("landlock", Enforcement.PARTIAL, ("one gap",)),
        changed=(ChangedPath(at("a\u202eb"), None, state(), kept=False),),
        refused=(RefusedChange("k.key", "policy.protected", "*.key (paths.protected)"),),
        warnings=(Warned("careful", "/src/**"),),
        notes=("a note",),
    )
    output = run(tool, ports, outcome)

    assert output.content.split("\n") == [
        "timed out (bash, 0.12 s)",
        "files changed: 1",
        "  created a\\u202eb",
        "changes refused: 1",
        "  k.key: *.key (paths.protected)",
        "[warning: careful]",
        "[a note]",
        "sandbox: landlock, partial, with 1 gaps",
        "stdout: 1 line",
        (
            "[kept in the history: 10 of 20 bytes as sha256:log;"
            " a person can print it with paddock ledger content]"
        ),
        "files changed: 9",
        "stderr: 1 line",
        "Command timed out after 3 seconds",
    ]
    assert output.details["output_kept"] == {"stdout": "sha256:log"}
    assert output.details["changes_refused"] == [
        {"path": "k.key", "rule": "*.key (paths.protected)"}
    ]
    assert output.details["timed_out"] is True
    assert set(output.details) <= set(tool.spec.output_schema["properties"])


def test_warnings_by_one_pattern_are_one_row_with_their_number(tool, ports):
    warnings = (
        *(Warned(f"careful: a{number}", "/src/**") for number in range(31)),
        Warned("careful: b", "/lib/*\u202e"),
        Warned("careful: c", "/lib/*\u202e"),
        Warned("careful: d", "/plugins/**"),
    )
    output = run(tool, ports, replace(OUTCOME, warnings=warnings))

    assert [row for row in output.content.split("\n") if "careful" in row] == [
        "[warning: careful: a0 … and 30 more like it, by /src/**]",
        "[warning: careful: b … and 1 more like it, by /lib/*\\u202e]",
        "[warning: careful: d]",
    ]
    assert output.details["warnings"] == [warning.text for warning in warnings]


def test_a_change_that_somebody_should_have_been_asked_about_says_how_to_make_it(tool, ports):
    rule = "tool:file:delete ** (profiles.standard.ask, paddock.toml:3)"
    asked = RefusedChange("a", "approval.unavailable", rule)
    output = run(tool, ports, replace(OUTCOME, refused=(asked,)))

    lines = output.content.split("\n")
    assert lines[2:4] == ["changes refused: 1", f"  a: {rule}"]
    assert lines[4].startswith("[approving a command does not approve changes that a rule asks")
    assert output.refused == (RefusedPath("a", "approval.unavailable", rule),)


def test_a_conflict_is_said_first(tool, ports):
    output = run(tool, ports, replace(OUTCOME, conflict="'a' changed"))

    assert output.content.split("\n")[1:3] == [
        "NOTHING WAS KEPT: 'a' changed",
        "view those files again, then repeat the command",
    ]
    assert output.details["conflict"] == "'a' changed"


def test_a_dry_run_has_no_changes(tool, ports):
    output = run(tool, ports, replace(OUTCOME, diff="--- a/x\n+++ b/x"), dry_run=True)

    assert "dry run, nothing was changed. It would be: 2 lines\n--- a/x\n" in output.content
    assert output.details["diff"] == "--- a/x\n+++ b/x"
    assert output.changes == ()


def test_long_lists_are_cut_and_that_is_said(tool, ports):
    rows = tuple(
        ChangedPath(at(f"f{number:05}"), None, state(), kept=False) for number in range(1500)
    )
    output = run(tool, ports, replace(OUTCOME, changed=rows))

    assert len(output.details["files_changed"]) == limits.shell_changes_listed_max
    assert output.details["not_listed"] == {"files_changed": 500, "changes_refused": 0}
    assert "  [and 1450 more]" in output.content
    assert len(output.changes) == limits.effects_listed_max
    assert (output.stored.digest, output.stored.total) == ("sha256:kept", 1500)
    [content] = ports.shell().kept
    assert [change.path for change in changes_from_bytes(content)] == [
        row.path.relative for row in rows
    ]


@pytest.mark.parametrize(
    ("is_staged", "effect"), [(True, LeftEffect.NONE), (False, LeftEffect.UNKNOWN)]
)
def test_a_command_that_was_cancelled_says_what_it_left(tool, ports, is_staged, effect):
    outcome = replace(OUTCOME, ending=Ending.CANCELLED, is_staged=is_staged)
    with pytest.raises(StoppedCallError) as caught:
        run(tool, ports, outcome)
    assert caught.value.effect is effect


def test_a_workspace_without_a_shell_says_so(tool, ports):
    bare = replace(ports, shell=None)
    plan = plan_of(tool, bare)
    with pytest.raises(SandboxUnavailableError):
        tool.handler.run(plan, bare)
    with pytest.raises(SandboxUnavailableError):
        tool.handler.pin(plan, bare)
    with pytest.raises(SandboxUnavailableError):
        tool.handler.stage(plan, bare)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"[{}]", b'[{"path": 1}]', b"\xff"])
def test_a_list_of_effects_that_is_none_is_said_to_be_so(content):
    with pytest.raises(ValueError):  # noqa: PT011 - any message
        changes_from_bytes(content)
