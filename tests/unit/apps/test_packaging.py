"""What lies beside the package is what the program says: plugins, completion, the man page."""

import json
import shutil
import subprocess
import tomllib

import pytest

from tests.support.repository import ROOT

PLUGINS = ROOT / "plugins"


def hooks_of(plugin: str) -> dict[str, object]:
    return json.loads((PLUGINS / plugin / "hooks" / "hooks.json").read_text())["hooks"]


def without_programs(hooks: dict[str, object]) -> dict[str, object]:
    """Which events, which calls, how long: all but what is started."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items() if k not in {"command", "args"}}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return {event: plain(groups) for event, groups in hooks.items()}


@pytest.mark.parametrize(
    ("client", "plugin", "written"),
    [
        ("claude", "claude-code", ".claude/settings.json"),
        ("codex", "codex", ".codex/config.toml"),
    ],
)
def test_a_plugin_hears_of_what_an_installed_hook_hears_of(user, client, plugin, written):
    assert user.run("hook", "install", "--client", client, "--yes").status == 0
    text = (user.project / written).read_text()
    installed = json.loads(text) if client == "claude" else tomllib.loads(text)

    assert without_programs(hooks_of(plugin)) == without_programs(installed["hooks"])


@pytest.mark.parametrize(("client", "plugin"), [("claude", "claude-code"), ("codex", "codex")])
def test_every_hook_of_a_plugin_answers_for_its_client(client, plugin):
    lines = [
        " ".join([hook["command"], *hook.get("args", ())])
        for groups in hooks_of(plugin).values()
        for group in groups
        for hook in group["hooks"]
    ]

    assert {line.partition(" || ")[0] for line in lines} == {f"paddock hook --client {client}"}


def test_plugins_have_the_version_of_the_package():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    manifests = [*PLUGINS.glob("*/.*-plugin/plugin.json")]

    assert {json.loads(path.read_text())["version"] for path in manifests} == {version}
    assert len(manifests) == 2


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_that_is_installed_is_what_the_program_prints(user, shell):
    kept = (ROOT / "packaging" / "completions" / shell).read_text()

    assert user.run("completion", shell).out == kept


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man")
def test_man_shows_the_page():
    page = ROOT / "docs" / "reference" / "paddock.1"

    shown = subprocess.run(
        ["man", "--warnings", "-l", page],
        capture_output=True,
        text=True,
        check=True,
        env={"MANWIDTH": "120", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"},
    )

    assert ("paddock policy explain" in shown.stdout, shown.stderr) == (True, "")
