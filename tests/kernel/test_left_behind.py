"""What one command leaves behind, or a clone brings, opens nothing to the next; toolchains work."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.assembly.project_open import open_project
from paddock.plane.environment import read_environment
from paddock.sandbox.facts import collect_facts
from paddock.sandbox.hidden import NameIndex
from paddock.sandbox.landlock import run_in_place
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.plan import ReadJudge, WriteJudge, compile_plan
from paddock.sandbox.values import CommandEnd, CommandRequest
from tests.support.shells import OPEN, Yard
from tests.support.users import give_to_plain_user

pytestmark = [pytest.mark.needs("bash")]

SECRET = "the secret of the user"
Run = Callable[[str], str]


class House(Yard):
    """A yard whose PATH begins with directories that its commands may change."""

    def search(self, *directories: str) -> None:
        path = ":".join((*(str(self.base / each) for each in directories), "/usr/bin", "/bin"))
        self.variables = {"PATH": path}

    def program(self, name: str, reads: str = "") -> None:
        """A program that says its own name and what stands in a file of the base."""
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        read = f"cat {self.base}/{reads}\n" if reads else ""
        path.write_text(f"#!/bin/sh\necho {path.name} runs\n{read}")
        path.chmod(0o755)

    def text(self, name: str, content: str = SECRET) -> None:
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def link(self, name: str, target: str) -> None:
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target if target.startswith("..") else self.base / target)


@pytest.fixture
def house(tmp_path: Path) -> House:
    made = House(tmp_path)
    made.make()
    return made


@pytest.fixture(
    params=[
        pytest.param("stage", marks=pytest.mark.needs("stage")),
        pytest.param("landlock", marks=pytest.mark.needs("landlock")),
    ]
)
def run(request, house: House) -> Run:
    """Runs a line as the next runtime would, on a plan of its own; what it says."""

    def under_this_backend(line: str) -> str:
        end = next_command(house, line, request.param)
        return (end.stdout.head + end.stderr.head).decode()

    return under_this_backend


def nothing() -> None:
    """What happens as a rule between a plan and its command."""


def next_command(
    house: House, line: str, backend: str, meanwhile: Callable[[], object] = nothing
) -> CommandEnd:
    """How a line ends on a plan of now, `meanwhile` done in between."""
    if backend == "landlock":
        give_to_plain_user(house.base)
    project = open_project(house.root, read_environment(house.all_variables))
    record = project.agents.read("main")
    policy, chain = project.policy_for(record), (record.agent,)
    facts = collect_facts(policy, project.agents, "main", house.all_variables)
    plan = compile_plan(policy, chain, facts).plan
    meanwhile()
    request = CommandRequest(plan, ("/bin/sh", "-c", line), ".", 60.0, 100_000)
    fd = os.open(house.root, os.O_PATH | os.O_DIRECTORY)
    try:
        if backend == "stage":
            with Launcher(house.base / "staging") as launcher, launcher.open_stage(plan, fd) as at:
                return launcher.run(request, at)
        read, write = NameIndex(ReadJudge(policy, chain)), NameIndex(WriteJudge(policy, chain))
        return run_in_place(replace(request, plan=plan), fd, (read, write))
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (".venv/bin/x", "home/data/patients.csv"),
        (".venv/bin/x", "home/project/bin/run"),
        ("node_modules/.bin/x", "home/data/patients.csv"),
        (".venv/bin", "home/data"),
        (".venv", "home/project"),
    ],
)
def test_a_link_in_the_workspace_opens_nothing_of_the_users(house, run, name, target):
    house.text("home/data/patients.csv")
    house.text("home/project/.env")
    house.program("home/project/bin/run")
    house.text("home/project/lib/x", "")
    house.link(f"project/{name}", target)
    house.link("project/data", "home/data")
    house.search("project/.venv/bin", "project/node_modules/.bin")
    home = house.home
    lines = f"cat data/patients.csv {name} {home}/data/patients.csv; cat {home}/project/.env"
    assert SECRET not in run(f"{lines}; ls {home}; echo over")
    house.govern(OPEN + f'[shell]\nread = ["/usr", "/bin", "/lib", "/lib64", "{home}/data"]\n')
    assert SECRET in run("cat data/patients.csv")


def test_a_link_in_a_place_that_commands_write_opens_nothing(house, run):
    house.text("home/.git-credentials")
    house.program("home/.cargo/bin/rustup", "home/.rustup/toolchains/stable/rustc")
    house.text("home/.rustup/toolchains/stable/rustc", "the compiler")
    house.link("home/.cargo/bin/cargo", "../bin/rustup")
    house.govern(OPEN + '[shell]\nwrite = ["~/.cargo"]\n')
    house.search("home/.cargo/bin")
    cargo = f"{house.home}/.cargo"
    line = f"cargo; echo 1 > {cargo}/new; cat {cargo}/new; echo $RUSTUP_HOME"
    assert run(line) == f"rustup runs\nthe compiler1\n{house.home}/.rustup\n"
    run(f"ln -s {house.home}/.git-credentials {cargo}/bin/x")
    assert os.path.islink(f"{cargo}/bin/x")
    assert SECRET not in run(f"cat {cargo}/bin/x {house.home}/.git-credentials")
    assert "the compiler" in run("cargo")


def test_a_readable_place_below_a_writable_one_may_not_become_a_link(house, run):
    house.text("home/.ssh/id")
    house.text("home/cache/tools/tool", "the tool")
    house.govern(
        OPEN
        + '[shell]\nwrite = ["~/cache"]\n'
        + 'read = ["/usr", "/bin", "/lib", "/lib64", "~/cache/tools"]\n'
    )
    cache = house.home / "cache"
    assert run(f"cat {cache}/tools/tool") == "the tool"
    run(f"rm -r {cache}/tools; ln -s ../.ssh {cache}/tools")
    assert (cache / "tools").is_symlink()
    assert SECRET not in run(f"cat {cache}/tools/id {house.home}/.ssh/id")


def test_an_environment_of_the_workspace_runs_its_interpreter_from_elsewhere(house, run):
    python = "home/.pyenv/versions/3.11"
    house.program(f"{python}/bin/python3.11", f"{python}/lib/python3.11/os.py")
    house.text(f"{python}/lib/python3.11/os.py", "the library")
    house.link("project/.venv/bin/python", f"{python}/bin/python3.11")
    house.link("project/.venv/bin/python3", "../bin/python")
    house.search("project/.venv/bin")
    assert run(".venv/bin/python3") == "python3.11 runs\nthe library"


def test_links_between_programs_of_the_workspace_work(house, run):
    house.program("project/node_modules/typescript/bin/tsc", "project/lib.d.ts")
    house.text("project/lib.d.ts", "the types")
    house.link("project/node_modules/.bin/tsc", "../typescript/bin/tsc")
    house.search("project/node_modules/.bin")
    assert run("tsc; node_modules/.bin/tsc") == "tsc runs\nthe types" * 2


@pytest.mark.parametrize("key", ["read", "write"])
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("stage", marks=pytest.mark.needs("stage")),
        pytest.param("landlock", marks=pytest.mark.needs("landlock")),
    ],
)
@pytest.mark.parametrize("name", ["home/cache", "home/cache/tools"])
def test_what_becomes_a_link_once_the_plan_is_made_is_not_there(house, backend, key, name):
    house.text("home/cache/tools/f", "the tool")
    house.text("home/other/tools/f")
    system = '"/usr", "/bin", "/lib", "/lib64"' if key == "read" else ""
    house.govern(OPEN + f'[shell]\n{key} = ["~/cache/tools", {system}]\n')

    def exchange() -> None:
        (house.base / name).rename(house.base / "moved")
        (house.base / name).symlink_to(house.home / ("other" + name.removeprefix("home/cache")))

    line = f"cat {house.home}/cache/tools/f; echo 1 > {house.home}/cache/tools/new"
    before = next_command(house, line, backend)
    after = next_command(house, line, backend, exchange)
    assert (before.stdout.head, after.stdout.head) == (b"the tool", b"")
    assert (house.base / name).is_symlink()
    assert os.listdir(house.home / "other/tools") == ["f"]


@pytest.mark.needs("stage")
def test_what_a_command_itself_leaves_behind_opens_nothing_to_the_next(house):
    house.text("home/data/patients.csv")
    house.write({".venv/bin/activate": ""})
    house.link("project/data", "home/data")
    house.search("project/.venv/bin")
    for line in (
        "ln -s ../../data/patients.csv .venv/bin/x",
        "rm -r .venv/bin; ln -s ../data .venv/bin",
    ):
        with house.opened() as terminal:
            assert terminal.sneak(line)["changes_refused"] == []
        with house.opened() as terminal:
            said = terminal.sneak(f"cat data/patients.csv {house.home}/data/patients.csv")
        assert said["stdout"] == ""
