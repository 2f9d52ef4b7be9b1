"""Tools that packages bring: loaded when configured, installed, approved and unchanged, else not."""

import json
import os

import pytest

from paddock.apps.mcp.agents import Agents
from paddock.assembly.extensions import EFFECTS
from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import open_runtime, tools_allowed
from paddock.runtime.approvals import NoApprover
from tests.support.packages import archive_bytes
from tests.support.planes import Operator, operator_in

TOOL = b'''"""Counts the words of a file."""

from dataclasses import dataclass

from paddock.tools.arguments import ArgumentType, needed_text
from paddock.tools.spec import Effects, Tool, ToolOutput, ToolSpec
from paddock.tools.spec import path_actions


class Arguments(ArgumentType):
    """Arguments of `word_count`."""

    path: str = needed_text("The file.")


@dataclass(frozen=True, slots=True)
class Plan:
    path: object
    actions: tuple


class WordCount:
    def resolve(self, arguments, ports):
        path = ports.workspace.resolve_read(arguments.path)
        return Plan(path, path_actions("file", "view", path))

    def run(self, plan, ports):
        content = ports.workspace.read_all(plan.path, 1_000_000)
        count = len(content.split())
        return ToolOutput(f"{count} words", {"words": count})


def tool():
    return Tool(
        ToolSpec(
            name="word_count",
            title="Count words",
            description="Count the words of a file.",
            toolset="core",
            arguments=Arguments,
            effects=Effects(reads_only=True),
        ),
        WordCount(),
    )
'''
PATH = "HOT/kernel/tools/word_count.py"
PACKAGE = "PKG-WORDS-001"
ENTRY = {"tool_id": "word_count", "package_id": PACKAGE}
BOOM = "raise SystemExit('out of here')"

WORDLESS = b"""class WordlessError(Exception):
    def __str__(self):
        return self.nothing
raise WordlessError
"""
HALF = b"""
from types import SimpleNamespace
def tool():
    effects = Effects(reads_only=True)
    spec = SimpleNamespace(name="word_count", title="", description="", arguments=Arguments, effects=effects)
    return Tool(spec, WordCount())
"""
"""A tool whose declaration only looks like one."""


def install(
    operator: Operator, *options: str, content: bytes = TOOL, approved: bool = True, **fields
):
    files = {PATH: content, "HOT/kernel/tools/words.md": b"about words\n", **fields.pop("more", {})}
    archive = operator.base / "words.tar.gz"
    fields = {"package_id": PACKAGE, "version": "1.0.0", **fields}
    value = json.loads(_manifest(files, **fields))
    for asset in value["assets"]:
        asset["classification"] = "tool" if asset["path"].endswith(".py") else "doc"
    archive.write_bytes(archive_bytes(files, **{**fields, "assets": value["assets"]}))
    if approved:
        assert operator.run("package", "approve", str(archive)).status == 0
    ran = operator.run("package", "install", str(archive), *options)
    assert ran.status == 0, ran.err


def _manifest(files, **fields) -> str:
    from tests.support.packages import manifest_json

    return json.dumps(manifest_json(files, **fields))


def configured(operator: Operator, *entries: dict) -> Operator:
    operator.change(package_tools=list(entries) or [ENTRY])
    return operator


def opened(operator: Operator) -> tuple[list[str], tuple[str, ...]]:
    """The names of the tools that there are, and the notices."""
    project = open_project(operator.plane, operator.environment())
    with open_runtime(project, agent=None, approver=NoApprover()) as runtime:
        return [tool.name for tool in runtime.tools.list_all()], runtime.notices


def refused(operator: Operator) -> str:
    """Why the tool is not there: it is in no list, and no call reaches it."""
    names, notices = opened(operator)
    assert "word_count" not in names
    assert "word_count" not in operator.run("tools").out
    ran = operator.call("word_count", path="HOT/kernel/tools/words.md")
    assert (ran.status, ran.json["code"]) == (1, "tool.unknown")
    (notice,) = [each for each in notices if "was not loaded" in each]
    return notice


# Loaded


def test_a_tool_that_is_configured_installed_and_unchanged_is_one_like_every_other(operator):
    install(operator)
    assert "word_count" not in opened(operator)[0]
    configured(operator)
    names, notices = opened(operator)
    assert ("word_count" in names, notices) == (True, ())
    project = open_project(operator.plane, operator.environment())
    assert "word_count" in tools_allowed(project, None)
    operator.write("HO2/words.txt", b"one two three\n")

    ran = operator.call("word_count", path="HO2/words.txt")

    assert (ran.status, ran.json["words"]) == (0, 3)
    assert operator.call("word_count", file="x").json["code"] == "args.unknown"
    assert operator.call("word_count", path="../../etc/passwd").json["code"] == "path.escapes_root"
    forbidden = operator.call("word_count", path="HOT/kernel/README.md")
    assert forbidden.json["code"] == "policy.forbidden"


def test_it_is_recorded_before_it_runs_whatever_it_says_of_itself(operator):
    install(operator)
    configured(operator)
    operator.write("HO2/words.txt", b"one two\n")
    operator.call("word_count", path="HO2/words.txt")
    project = open_project(operator.plane, operator.environment())
    with open_runtime(project, agent=None, approver=NoApprover()) as runtime:
        tool = runtime.tools.get("word_count")
    assert (tool.reads_only, tool.spec.effects, tool.spec.toolset) == (False, EFFECTS, "package")
    [*_, intent] = operator.entries("ho1m", "TOOL_INTENT")
    actions = json.dumps(intent["metadata"])
    assert f"tool:package:run {PACKAGE}/word_count" in actions
    assert "tool:file:view HO2/words.txt" in actions


def test_policy_can_close_it(operator):
    install(operator)
    configured(operator)
    operator.write("HO2/words.txt", b"one two\n")
    (operator.plane / "HOT/config/policy.toml").write_text(
        f'[profiles.admin]\nallow = ["tool:*"]\ndeny = ["tool:package:run {PACKAGE}/*"]\n'
    )
    ran = operator.call("word_count", path="HO2/words.txt")
    assert (ran.status, ran.json["code"]) == (1, "policy.denied")


def test_on_a_development_plane_nobody_has_to_approve_it(tmp_path):
    operator = operator_in(tmp_path).make("--dev")
    install(operator, approved=False)
    configured(operator)
    assert "word_count" in opened(operator)[0]


def test_it_belongs_to_the_admin_alone(operator):
    install(operator)
    configured(operator)
    assert operator.run("agent", "create", "kid").status == 0
    assert "word_count" not in operator.run("tools", "--agent", "kid").out
    assert operator.run("agent", "create", "kid2", "--toolsets", "package").status != 0


# Not loaded


def test_what_is_not_installed_is_not_loaded(operator):
    configured(operator)
    assert "the package is not installed" in refused(operator)
    install(operator)
    assert operator.run("package", "uninstall", PACKAGE).status == 0
    assert "the package is not installed" in refused(operator)


@pytest.mark.parametrize("name", [PATH, "HOT/kernel/tools/words.md"])
def test_a_file_of_the_package_that_changed_closes_its_tools(operator, name):
    install(operator)
    configured(operator)
    with (operator.plane / name).open("ab") as file:
        file.write(b"# more\n")
    assert "its digest is" in refused(operator)


def test_a_manifest_that_was_changed_with_the_file_does_not_help(operator):
    install(operator)
    configured(operator)
    changed = TOOL.replace(b"len(content.split())", b"666")
    (operator.plane / PATH).write_bytes(changed)
    from paddock.values.entries import digest_of

    folder = operator.plane / f"HOT/installed/{PACKAGE}"
    before = folder.joinpath("manifest.json").read_bytes()
    after = before.replace(digest_of(TOOL).encode(), digest_of(changed).encode())
    folder.joinpath("manifest.json").write_bytes(after)
    receipt = folder.joinpath("receipt.json").read_bytes()
    receipt = receipt.replace(digest_of(TOOL).encode(), digest_of(changed).encode())
    receipt = receipt.replace(digest_of(before).encode(), digest_of(after).encode())
    folder.joinpath("receipt.json").write_bytes(receipt)
    assert "not the one that was installed" in refused(operator)


def test_a_link_in_its_place_is_not_followed(operator):
    install(operator)
    configured(operator)
    (operator.base / "evil.py").write_bytes(TOOL)
    (operator.plane / PATH).unlink()
    (operator.plane / PATH).symlink_to(operator.base / "evil.py")
    assert "link" in refused(operator)


def test_without_an_approval_it_is_not_loaded(operator):
    install(operator, "--dev", approved=False)
    configured(operator)
    assert "no operator approved" in refused(operator)
    archive = operator.base / "words.tar.gz"
    assert operator.run("package", "approve", str(archive)).status == 0
    assert "word_count" in opened(operator)[0]


def test_on_a_plane_that_was_brought_nothing_is_loaded(operator, tmp_path):
    install(operator)
    configured(operator)
    brought = tmp_path / "brought"
    operator.plane.rename(brought)
    ran = operator.run("tools", here=brought)
    assert "word_count" not in ran.out
    shown = operator.run("trust", str(brought), here=tmp_path)
    assert f"code of {PACKAGE} runs as the tool word_count" in shown.out


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"tool_id": "read_file", "package_id": PACKAGE}, "a tool of that name exists already"),
        ({"tool_id": "word_dev", "package_id": PACKAGE}, "development tools"),
        ({"tool_id": "../x", "package_id": PACKAGE}, "invalid tool name"),
        ({"tool_id": "words", "package_id": PACKAGE}, "it has 0 tool files words.py"),
        ({"tool_id": "word_count", "package_id": "PKG-KERNEL-001"}, "it has 0 tool files"),
    ],
)
def test_a_name_that_is_taken_or_not_there_is_not_loaded(operator, entry, reason):
    install(operator)
    configured(operator, entry)
    names, notices = opened(operator)
    assert (names.count("read_file"), "word_count" in names) == (1, False)
    assert reason in notices[-1]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"def tool(:\n", "SyntaxError"),
        (b"1 / 0\n", "ZeroDivisionError"),
        (BOOM.encode(), "SystemExit"),
        (b"import paddock_nothing_like_it\n", "ModuleNotFoundError"),
        (b"x = 1\n", "AttributeError"),
        (b"raise StopIteration\n", "StopIteration"),
        (b"class OwnError(Exception): pass\nraise OwnError('why')\n", "OwnError: why"),
        (b"class Own(BaseException): pass\nraise Own('why')\n", "Own: why"),
        (b"def tool():\n    class OwnError(Exception): pass\n    raise OwnError\n", "OwnError"),
        (WORDLESS, "WordlessError"),
        (TOOL + HALF, "AttributeError"),
        (TOOL.replace(b'"Count the words of a file."', b"None"), "not both text"),
        (b"def tool():\n    return 7\n", "does not return a Tool"),
        (TOOL.replace(b'name="word_count"', b'name="other"'), "its tool has the name 'other'"),
        (b"\0", "SyntaxError|ValueError"),
        (b"\xff\xfe", "SyntaxError|ValueError"),
    ],
)
def test_a_module_that_does_not_make_its_tool_is_not_loaded(operator, content, reason):
    import re

    install(operator, content=content)
    configured(operator)
    assert re.search(reason, refused(operator))
    assert operator.call("list_packages").status == 0


def test_an_interrupt_while_a_module_is_loaded_is_not_its_fault(operator):
    install(operator, content=b"raise KeyboardInterrupt\n")
    configured(operator)
    with pytest.raises(KeyboardInterrupt):
        opened(operator)


def test_a_tool_cannot_end_the_process_or_hand_back_something_else(operator):
    ending = TOOL.replace(
        b"        return ToolOutput(", f"        {BOOM}\n        return (".encode()
    )
    install(operator, content=ending)
    configured(operator)
    operator.write("HO2/words.txt", b"one two\n")
    assert operator.call("word_count", path="HO2/words.txt").json["code"] == "internal"
    own = BOOM.replace("SystemExit", "type('Own', (BaseException,), {})")
    planning = b"        path = ports.workspace.resolve_read("
    ending = TOOL.replace(planning, f"        {own}\n        path = (".encode())
    install(operator, content=ending, version="1.0.1")
    assert operator.call("word_count", path="HO2/words.txt").json["code"] == "internal"
    other = TOOL.replace(b"        return ToolOutput(", b"        return (")
    install(operator, content=other, version="1.1.0")
    assert operator.call("word_count", path="HO2/words.txt").json["code"] == "internal"


def test_its_bytes_are_run_and_no_cache_and_no_neighbour(operator, monkeypatch):
    install(
        operator, more={"HOT/kernel/tools/helper.py": b"VALUE = 1\n"}, content=b"import helper\n"
    )
    configured(operator)
    monkeypatch.chdir(operator.plane / "HOT/kernel/tools")
    assert "ModuleNotFoundError" in refused(operator)
    assert not list(operator.plane.rglob("__pycache__"))
    assert not any(name.startswith(".") for name in os.listdir(operator.plane))


# A server runs on while packages come and go


def test_a_server_offers_a_packages_tool_for_as_long_as_the_package_is_installed(operator):
    install(configured(operator))
    operator.write("HOT/config/policy.toml", b'[profiles.admin]\nallow = ["tool:*"]\n')
    agents = Agents(lambda: open_project(operator.plane, operator.environment()))
    operator.write("HO2/words.txt", b"one two\n")
    arguments = {"path": "HO2/words.txt"}
    try:
        before = agents.get()
        assert "word_count" in before.tools
        assert before.runtime.call("word_count", arguments).content == "2 words"
        assert agents.get() is before

        assert operator.run("package", "uninstall", PACKAGE).status == 0
        gone = agents.get()
        assert "word_count" not in gone.tools
        assert gone.runtime.call("word_count", arguments).refusal.code == "tool.unknown"

        install(operator, version="1.1.0")
        assert "word_count" in agents.get().tools
    finally:
        agents.close()
