"""Toolchains: found by what lies beside a program, believed only where nobody planted it."""

import os
from pathlib import Path

import pytest

from paddock.sandbox.host.host_facts import LeftOut, ResolvedPath, Resolver
from paddock.sandbox.host.toolchains import FoundToolchain, find_toolchains


class Host:
    """A home directory and a workspace, with a PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.workspace = root / "ws"
        self.path: list[str] = []
        self.changeable: list[str] = []
        for directory in (self.home, self.workspace):
            directory.mkdir()

    def make(self, *names: str) -> None:
        for name in names:
            place = self.root / name.rstrip("/")
            if name.endswith("/"):
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(b"#!/bin/sh\n")

    def link(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).symlink_to(text if text.startswith("..") else self.root / text)

    def python(self, prefix: str) -> None:
        self.make(f"{prefix}/bin/python3", f"{prefix}/lib/python3.11/os.py")

    def environment(self, prefix: str, home: str) -> None:
        self.make(f"{prefix}/bin/pytest")
        (self.root / prefix / "pyvenv.cfg").write_text(
            f"include-system-site-packages = false\nhome = {home}\n"
        )

    def find(self, **variables: str) -> FoundToolchain:
        path = ":".join(
            each if each.startswith("/") else str(self.root / each) for each in self.path
        )
        return find_toolchains(
            {"PATH": path, **variables},
            str(self.home),
            str(self.workspace),
            tuple(str(self.root / each) for each in self.changeable),
            (str(self.root / "store"),),
        )

    def found(self, **variables: str) -> list[tuple[str, str]]:
        prefix = f"{self.root}/"
        return [
            (each.name, each.readable[0].removeprefix(prefix))
            for each in self.find(**variables).toolchains
        ]


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_system_directory_is_no_toolchain(host):
    host.path = ["/usr/bin", "/bin", "/nowhere", "relative", ""]
    found = host.find()
    assert [each.asked for each in found.search_path][:1] == ["/usr/bin"]
    assert "/nowhere" not in [each.asked for each in found.search_path]


def test_each_kind_is_told_by_its_marks(host):
    host.make(
        "home/.pyenv/versions/",
        "home/.pyenv/shims/python",
        "home/.pyenv/plugins/python-build/",
        "home/.nvm/versions/node/v20/bin/node",
        "home/go/pkg/",
        "home/go/src/runtime/",
        "home/go/bin/go",
        "home/mini/conda-meta/",
        "home/mini/condabin/conda",
        "home/.asdf/installs/",
        "home/.asdf/plugins/",
        "home/.asdf/shims/erl",
        "home/jdk/release",
        "home/jdk/lib/modules",
        "home/jdk/bin/java",
    )
    host.python("home/python")
    host.path = [
        "home/.pyenv/shims",
        "home/.nvm/versions/node/v20/bin",
        "home/go/bin",
        "home/mini/condabin",
        "home/.asdf/shims",
        "home/jdk/bin",
        "home/python/bin",
    ]
    assert host.found() == [
        ("pyenv", "home/.pyenv"),
        ("node", "home/.nvm/versions/node/v20"),
        ("go", "home/go"),
        ("conda", "home/mini"),
        ("asdf", "home/.asdf"),
        ("java", "home/jdk"),
        ("python", "home/python"),
    ]


def test_a_directory_of_programs_brings_nothing_beside_it(host):
    host.make("home/.local/bin/tool", "home/.local/share/keyrings/secret", "home/.local/lib/x")
    host.make("home/bin/tool", "home/lib/x", "home/project/bin/run", "home/project/lib/.env")
    host.path = ["home/.local/bin", "home/bin", "home/project/bin"]
    assert host.found() == [
        ("programs", "home/.local/bin"),
        ("programs", "home/bin"),
        ("programs", "home/project/bin"),
    ]


def test_a_home_with_a_toolchains_marks_is_still_home(host):
    host.python("home")
    host.path = ["home/bin"]
    assert host.found() == [("programs", "home/bin")]


def test_cargo_is_rustup_which_needs_its_own_home(host):
    host.make("home/.cargo/bin/cargo", "home/.cargo/bin/rustup", "home/.cargo/credentials.toml")
    host.make("home/.rustup/toolchains/stable/bin/rustc", "home/.rustup/settings.toml")
    host.path = ["home/.cargo/bin"]
    found = host.find()
    assert host.found() == [("programs", "home/.cargo/bin"), ("rustup", "home/.rustup")]
    assert found.toolchains[1].variables == (("RUSTUP_HOME", f"{host.home}/.rustup"),)


def test_links_from_a_directory_of_programs_are_followed_to_their_toolchain(host):
    host.python("home/.local/share/uv/python/cpython-3.12")
    host.environment(
        "home/.local/share/uv/tools/ruff", f"{host.home}/.local/share/uv/python/cpython-3.12/bin"
    )
    host.link("home/.local/bin/python3.12", "home/.local/share/uv/python/cpython-3.12/bin/python3")
    host.link("home/.local/bin/pytest", "home/.local/share/uv/tools/ruff/bin/pytest")
    host.make("home/apps/one/run.sh", "home/apps/one/.env")
    host.link("home/.local/bin/run", "home/apps/one/run.sh")
    host.path = ["home/.local/bin"]
    assert host.found() == [
        ("programs", "home/.local/bin"),
        ("python", "home/.local/share/uv/python/cpython-3.12"),
        ("programs", "home/.local/share/uv/tools"),
        ("program", "home/apps/one/run.sh"),
    ]


@pytest.mark.parametrize("name", [".venv", "venv"])
def test_the_workspaces_own_environment_brings_its_interpreter(host, name):
    host.python("home/pythons/3.11")
    host.environment(f"ws/{name}", f"{host.home}/pythons/3.11/bin")
    assert host.found() == [("python", "home/pythons/3.11")]


@pytest.mark.parametrize("base", ["home/.ssh", "home", "home/project", "nowhere"])
def test_an_environment_that_names_no_python_brings_nothing(host, base):
    host.make("home/.ssh/id_ed25519", "home/project/.env", "home/.ssh/bin/python3")
    host.environment("ws/.venv", f"{host.root}/{base}/bin")
    assert host.found() == []


def test_an_environments_configuration_is_not_read_through_a_link(host):
    host.python("home/pythons/3.11")
    host.make("ws/.venv/")
    (host.root / "planted.cfg").write_text(f"home = {host.home}/pythons/3.11/bin\n")
    host.link("ws/.venv/pyvenv.cfg", "planted.cfg")
    assert host.found() == []
    os.mkfifo(host.workspace / "venv-pipe")
    host.make("ws/venv/")
    os.mkfifo(host.workspace / "venv/pyvenv.cfg")
    assert host.found() == []


def test_the_active_environment_brings_its_interpreter(host):
    host.python("home/pythons/3.11")
    host.environment("home/envs/work", f"{host.home}/pythons/3.11/bin")
    host.path = ["home/envs/work/bin"]
    assert host.found(VIRTUAL_ENV=f"{host.home}/envs/work") == [
        ("virtualenv", "home/envs/work"),
        ("python", "home/pythons/3.11"),
    ]


def test_a_directory_where_everybody_may_write_is_left_out(host):
    host.make("shared/bin/git")
    (host.root / "shared/bin").chmod(0o1777)
    host.path = ["shared/bin"]
    found = host.find()
    assert (found.search_path, found.toolchains) == ((), ())
    assert found.left_out == (LeftOut(f"{host.root}/shared/bin", "it is world-writable"),)


def test_many_links_to_single_files_are_bounded(host):
    for number in range(40):
        host.make(f"home/apps/{number}/run")
        host.link(f"home/.local/bin/run{number:02}", f"home/apps/{number}/run")
    host.path = ["home/.local/bin"]
    found = host.find()
    assert len(found.toolchains) == 25
    assert len(found.left_out) == 16


# --- links that a command can have made ----------------------------------------


def why(link: str, target: str) -> LeftOut:
    said = f"a link that commands can change leads to {target}, not a toolchain"
    return LeftOut(link, said)


def test_an_environment_of_the_workspace_on_path_reaches_its_interpreter_by_links(host):
    host.make("home/.pyenv/versions/3.11/bin/python3.11", "home/.pyenv/versions/3.11/lib/x")
    host.python("home/.pyenv/versions/3.11")
    host.link("ws/.venv/bin/python", "home/.pyenv/versions/3.11/bin/python3.11")
    host.link("ws/.venv/bin/python3", "../bin/python")
    host.path = ["ws/.venv/bin"]
    found = host.find()
    assert host.found() == [("python", "home/.pyenv/versions/3.11")]
    assert ([each.real for each in found.search_path], found.left_out) == (
        [f"{host.workspace}/.venv/bin"],
        (),
    )


def test_an_interpreter_is_reached_by_another_name_of_its_directory_too(host):
    host.python("home/.local/share/uv/python/cpython-3.12.1")
    host.link("home/.local/share/uv/python/cpython-3.12", "../python/cpython-3.12.1")
    home = f"{host.home}/.local/share/uv/python"
    host.environment("ws/.venv", f"{home}/cpython-3.12.1/bin")
    host.link("ws/.venv/bin/python", "home/.local/share/uv/python/cpython-3.12/bin/python3")
    host.path = ["ws/.venv/bin"]
    (python,) = host.find().toolchains
    assert (python.name, python.readable) == ("python", (f"{home}/cpython-3.12.1",))
    assert (f"{home}/cpython-3.12", "../python/cpython-3.12.1") in python.links


def test_links_between_the_workspaces_own_programs_stay_there(host):
    host.make("ws/node_modules/typescript/bin/tsc", "home/node/include/node/node.h")
    host.make("home/node/bin/node")
    host.link("ws/node_modules/.bin/tsc", "../typescript/bin/tsc")
    host.link("ws/node_modules/.bin/node", "home/node/bin/node")
    host.path = ["ws/node_modules/.bin", "/usr/bin"]
    (first, *_) = host.find().search_path
    assert first.asked == f"{host.workspace}/node_modules/.bin"
    assert host.found()[0] == ("node", "home/node")
    assert host.find().left_out == ()


@pytest.mark.parametrize(
    "target",
    [
        *("home/.git-credentials", "home/data/patients.csv", "home/project/bin/run"),
        *("home/other/bin/python", "home/mine/bin/node", "home/.local/share/uv/tools/t/bin/x"),
        *("home/data", "home/.local/bin/x", "home/bin/x"),
    ],
)
def test_a_link_of_the_workspace_opens_nothing_that_is_no_toolchain(host, target):
    host.environment("home/other", f"{host.home}/none/bin")
    host.environment("home/.local/share/uv/tools/t", f"{host.home}/none/bin")
    host.make("home/data/x", "home/project/lib/.env", "home/other/bin/python", "home/.env")
    for name in {target} - {"home/data"}:
        host.make(name)
    host.make("ws/bin/run")
    host.link("ws/bin/x", target)
    host.path = ["ws/bin"]
    found = host.find()
    assert (found.toolchains, found.left_out) == (
        (),
        (why(f"{host.workspace}/bin/x", f"{host.root}/{target}"),),
    )


def test_a_python_in_the_broad_places_of_a_home_is_not_believed_by_its_marks(host):
    host.python("home/.local")
    host.link("ws/bin/x", "home/.local/bin/python3")
    host.environment("ws/.venv", f"{host.home}/.local/bin")
    host.path = ["ws/bin"]
    found = host.find()
    assert (found.toolchains, {each.path for each in found.left_out}) == (
        (),
        {f"{host.home}/.local", f"{host.workspace}/bin/x"},
    )


def test_a_directory_of_path_that_is_a_link_of_the_workspace_is_believed_by_marks(host):
    host.python("home/python")
    host.make("home/data/patients.csv")
    host.link("ws/bin", "home/python/bin")
    host.link("ws/.venv/bin", "home/data")
    host.path = ["ws/.venv/bin", "ws/bin"]
    found = host.find()
    assert host.found() == [("python", "home/python")]
    assert [each.asked for each in found.search_path] == [f"{host.workspace}/bin"]
    assert found.left_out == (why(f"{host.workspace}/.venv/bin", f"{host.home}/data"),)


def test_what_the_operators_own_path_opens_stays_open_by_a_link_of_the_workspace(host):
    host.environment("home/envs/work", f"{host.home}/none/bin")
    host.link("ws/.venv", "home/envs/work")
    host.path = ["ws/.venv/bin"]
    assert (host.found(), host.find().search_path) == ([], ())
    host.path = ["ws/.venv/bin", "home/envs/work/bin"]
    assert host.found() == [("virtualenv", "home/envs/work")]
    assert [each.asked for each in host.find().search_path] == [
        f"{host.workspace}/.venv/bin",
        f"{host.home}/envs/work/bin",
    ]


def test_a_profile_in_the_workspace_leads_to_the_store(host):
    host.make("store/def-rg/bin/rg", "store/abc-profile/bin/x")
    host.link("store/abc-profile/bin/rg", "store/def-rg/bin/rg")
    host.link("ws/.devenv/profile", "store/abc-profile")
    host.link("ws/bin/rg", "store/def-rg/bin/rg")
    host.path = ["ws/.devenv/profile/bin", "ws/bin"]
    found = host.find()
    assert {each.readable for each in found.toolchains} == {(f"{host.root}/store",)}
    assert [each.real for each in found.search_path] == [
        f"{host.root}/store/abc-profile/bin",
        f"{host.workspace}/bin",
    ]


def test_an_operators_link_that_passes_the_workspace_is_a_link_of_the_workspace(host):
    host.make("home/.git-credentials", "ws/tool")
    host.link("ws/other", "home/.git-credentials")
    host.link("home/.local/bin/tool", "ws/tool")
    host.link("home/.local/bin/other", "ws/other")
    host.path = ["home/.local/bin"]
    assert host.found() == [("programs", "home/.local/bin")]
    assert host.find().left_out == (
        why(f"{host.home}/.local/bin/other", f"{host.home}/.git-credentials"),
    )


def test_links_in_a_place_that_policy_lets_commands_write_are_nobodys(host):
    host.make("home/.cargo/bin/rustup", "home/.cargo/credentials.toml", "home/.git-credentials")
    host.make("home/.rustup/toolchains/stable/bin/rustc", "home/.rustup/settings.toml")
    for name in ("cargo", "rustc"):
        host.link(f"home/.cargo/bin/{name}", "../bin/rustup")
    host.link("home/.cargo/bin/x", "home/.git-credentials")
    host.path = ["home/.cargo/bin"]
    trusted = [("programs", "home/.cargo/bin"), ("rustup", "home/.rustup")]
    assert host.found() == [*trusted, ("program", "home/.git-credentials")]
    host.changeable = ["home/.cargo"]
    assert host.found() == trusted
    assert host.find().left_out == (
        why(f"{host.home}/.cargo/bin/x", f"{host.home}/.git-credentials"),
    )
    host.changeable = ["home/.cargo", "home/.rustup"]
    assert host.find().toolchains[1].variables == (("RUSTUP_HOME", f"{host.home}/.rustup"),)


@pytest.mark.parametrize("changeable", ["home/x/bin", "home/x/lib/rustlib", "ws"])
def test_marks_that_a_command_can_have_made_open_nothing_beside_them(host, changeable):
    host.make("home/x/bin/run", "home/x/.env")
    host.make("home/x/lib/rustlib" if "lib" in changeable else "home/x/bin/node")
    if changeable == "ws":
        (host.root / "home/x/bin/node").unlink()
        host.make("ws/planted")
        host.link("home/x/bin/node", "ws/planted")
    host.path = ["home/x/bin"]
    assert host.found()[0] in [("node", "home/x"), ("rust", "home/x"), ("programs", "home/x/bin")]
    host.changeable = [changeable]
    assert host.found() == [("programs", "home/x/bin")]


def test_rustups_home_is_not_taken_from_a_link_of_the_workspace(host):
    host.make("home/.cargo/bin/rustup", "home/mail/toolchains/x", "home/mail/inbox")
    host.link("ws/rustup-home", "home/mail")
    host.path = ["home/.cargo/bin"]
    assert host.found(RUSTUP_HOME=f"{host.workspace}/rustup-home") == [
        ("programs", "home/.cargo/bin")
    ]


# --- where a path really is ----------------------------------------------------


def test_a_path_is_told_with_the_links_on_its_way(tmp_path):
    (tmp_path / "real/bin").mkdir(parents=True)
    (tmp_path / "one").symlink_to("real")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    base = str(tmp_path)
    assert Resolver().find(f"{base}/two/bin") == ResolvedPath(
        f"{base}/two/bin",
        f"{base}/real/bin",
        ((f"{base}/two", f"{base}/one"), (f"{base}/one", "real")),
    )


def test_a_path_that_leads_nowhere_or_round_has_no_place(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nothing")
    resolver = Resolver()
    assert [resolver.find(f"{tmp_path}/{name}") for name in ("loop", "dangling", "none")] == [
        None
    ] * 3
    assert resolver.find("/") == ResolvedPath("/", "/")
