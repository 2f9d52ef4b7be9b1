"""What git on the host says of its configuration, and what of it commands are given."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec import Struct, field

from paddock.sandbox.host.git import GitConfigReader, GitSetting, list_settings, parse_listing
from paddock.sandbox.host.host_facts import GitFacts, GitFilter, LeftOut, ResolvedPath

pytestmark = pytest.mark.needs("git")


class Host(Struct, dict=True):
    """A home and a workspace, at which git is asked."""

    base: Path
    variables: dict[str, str] = field(default_factory=lambda: {"GIT_CONFIG_NOSYSTEM": "1"})

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def workspace(self) -> Path:
        return self.base / "ws"

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def git(self, *arguments: str) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), **self.variables}
        subprocess.run(["git", *arguments], cwd=self.workspace, env=environment, check=True)

    def look(self, *changeable: str, path: tuple[str, ...] = ("/usr/bin", "/bin")) -> GitFacts:
        found = (ResolvedPath(each, os.path.realpath(each)) for each in path)
        return GitConfigReader(
            workspace=str(self.workspace),
            home=str(self.home),
            variables={"HOME": str(self.home), **self.variables},
            search_path=tuple(found),
            changeable=changeable,
            secret_places=(f"{self.home}/.ssh",),
            is_secret=lambda name: name == ".env",
        ).read()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(Path(os.path.realpath(tmp_path)))
    made.home.mkdir()
    made.workspace.mkdir()
    return made


@pytest.fixture
def repository(host: Host) -> Host:
    host.git("init", "-q")
    return host


def test_without_a_repository_and_a_configuration_nobody_is_asked(host: Host):
    facts = host.look(path=())

    assert facts == GitFacts()


def test_a_value_of_the_list_is_taken_and_the_last_word_counts(repository: Host):
    repository.write("home/.gitconfig", "[core]\n\tautocrlf = true\n\teol\n\tautocrlf = input\n")

    assert repository.look().values == (("core.autocrlf", "input"), ("core.eol", "true"))


@pytest.mark.parametrize(
    "line",
    [
        "[core]\n\tpager = less",
        "[core]\n\thooksPath = ~/hooks",
        "[alias]\n\tst = status",
        '[url "https://token@h/"]\n\tinsteadOf = https://h/',
        "[http]\n\textraHeader = Authorization: x",
        "[commit]\n\ttemplate = ~/message",
        "[gpg]\n\tprogram = x",
        "[include]\n\tpath = ~/more",
        '[merge "x"]\n\tdriver = x',
        '[core]\n\tautocrlf = "a\\nb"',
        f"[core]\n\teol = {'x' * 201}",
    ],
)
def test_nothing_else_is(repository: Host, line: str):
    repository.write("home/.gitconfig", f"{line}\n")

    assert repository.look().values == ()


def test_what_the_repository_says_itself_is_not_repeated(repository: Host):
    repository.git("config", "core.autocrlf", "input")
    repository.git("config", "commit.gpgSign", "true")

    facts = repository.look()

    assert facts.values == ()
    assert {"core.autocrlf", "commit.gpgsign"} <= set(facts.own_keys)
    assert facts.is_signing


def test_a_later_word_against_signing_counts(repository: Host):
    repository.write("home/.gitconfig", "[commit]\n\tgpgSign = true\n")
    assert repository.look().is_signing
    repository.git("config", "commit.gpgSign", "false")
    assert not repository.look().is_signing


def test_who_commits_by_the_environment_is_taken_and_nothing_else_of_git(repository: Host):
    repository.variables |= {
        "GIT_AUTHOR_NAME": "A",
        "EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "two\nlines",
        "GIT_SSH_COMMAND": "ssh -i key",
        "GIT_DIR": "/elsewhere",
    }

    assert repository.look().variables == (("EMAIL", "a@b"), ("GIT_AUTHOR_NAME", "A"))


def test_a_filter_says_where_its_program_may_be(repository: Host):
    program = repository.write("tools/mine", "#!/bin/sh\n")
    program.chmod(0o755)
    repository.write(
        "home/.gitconfig",
        f'[filter "a"]\n\tclean = {program} --in %f\n\tsmudge = no-such --out\n'
        '[filter "b\\"c"]\n\tclean = cat\n',
    )
    repository.git("config", "filter.own.process", "./tools/run it")

    assert repository.look().filters == (
        GitFilter(
            "a",
            False,
            (("clean", f"{program} --in %f"), ("smudge", "no-such --out")),
            ((str(program),), ()),
        ),
        GitFilter("own", True, (("process", "./tools/run it"),), ((),)),
    )


def test_names_of_filters_come_from_every_attributes_file_at_the_top(repository: Host):
    repository.write(
        "ws/.gitattributes", '*.a filter=a\n*.b text filter=b eol=lf\n*.x filter=";x"\n'
    )
    repository.write("ws/.git/info/attributes", "*.c filter=c\n")
    repository.write("home/.config/git/attributes", "*.d filter=d\n")
    repository.write("ws/below/.gitattributes", "*.e filter=e\n")

    assert repository.look().filter_names == ("d", "a", "b", "c")


def test_an_ignore_file_ends_its_last_line(repository: Host):
    repository.write("home/.config/git/ignore", "*.swp")

    assert repository.look().ignored == "*.swp\n"


def test_the_users_own_place_for_configuration_counts(repository: Host):
    repository.variables["XDG_CONFIG_HOME"] = str(repository.base / "xdg")
    repository.write("xdg/git/ignore", "*.swp\n")

    assert repository.look().ignored == "*.swp\n"


@pytest.mark.parametrize(
    ("content", "is_taken"),
    [(b"x\n" * 32_768, True), (b"x\n" * 32_769, False), (b"a\0b\n", False), (b"\xff\n", False)],
)
def test_an_ignore_file_is_a_small_text_or_is_left_out(repository: Host, content, is_taken):
    path = repository.write("home/.config/git/ignore", content)

    facts = repository.look()

    assert bool(facts.ignored) is is_taken
    assert [each.path for each in facts.left_out] == ([] if is_taken else [str(path)])


@pytest.mark.parametrize(
    ("real", "why"),
    [
        ("home/.ssh/key", "it is a secret"),
        ("home/.env", "it is a secret"),
        ("ws/ignore", "commands can change it"),
        ("srv/ignore", "commands can change it"),
    ],
)
def test_a_link_in_its_place_to_what_nobody_is_shown_is_left_out(repository: Host, real, why):
    target = repository.write(real, "TOKEN\n")
    link = repository.home / ".config/git/ignore"
    link.parent.mkdir(parents=True)
    link.symlink_to(target)

    facts = repository.look(f"{repository.base}/srv")

    assert facts.ignored == ""
    assert [(each.path, each.why.startswith(why)) for each in facts.left_out] == [(str(link), True)]


@pytest.mark.parametrize("kind", ["directory", "FIFO"])
def test_what_is_no_file_in_its_place_is_left_out(repository: Host, kind: str):
    place = repository.home / ".config/git/ignore"
    place.parent.mkdir(parents=True)
    place.mkdir() if kind == "directory" else os.mkfifo(place)

    facts = repository.look()

    assert (facts.ignored, [each.path for each in facts.left_out]) == ("", [str(place)])


def test_a_user_who_wants_no_ignore_file_is_told_nothing(repository: Host):
    repository.write("home/.gitconfig", "[core]\n\texcludesFile = /dev/null\n")
    repository.write("home/.config/git/ignore", "*.swp\n")

    assert (repository.look().ignored, repository.look().left_out) == ("", ())


def test_a_git_that_commands_can_put_there_is_not_asked(repository: Host):
    mark = repository.base / "ran"
    program = repository.write("ws/bin/git", f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    repository.write("home/.gitconfig", "[core]\n\teol = lf\n")

    facts = repository.look(path=(f"{repository.workspace}/bin", "/usr/bin"))

    assert facts.values == (("core.eol", "lf"),)
    assert not mark.exists()


@pytest.mark.parametrize(
    "body", ["sleep 60", "exec sleep 60", "yes", "exit 1", "printf 'no listing'"]
)
def test_a_git_that_does_not_say_it_in_time_and_in_full_is_not_believed(
    host: Host, body: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("paddock.sandbox.host.git._TIME_S", 0.5)
    program = host.write("bin/git", f"#!/bin/sh\nexec 2>/dev/null\n{body}\n")
    program.chmod(0o755)
    host.write("home/.gitconfig", "[core]\n\teol = lf\n")

    facts = host.look(path=(f"{host.base}/bin",))

    assert facts.values == ()
    assert [each.path for each in facts.left_out] == ["git config"]


def test_where_git_is_not_there_nothing_is_said():
    assert list_settings("/no/such/git", "/", {}) is None


def test_a_listing_is_read_entry_by_entry():
    content = (
        b"global\0file:/h/.gitconfig\0core.eol\nlf\0"
        b"local\0file:.git/config\0core.bare\0"
        b"command\0command line:\0a.b\ntwo\nlines\0"
    )

    assert parse_listing(content, "/ws") == (
        GitSetting("global", "/h/.gitconfig", "core.eol", "lf"),
        GitSetting("local", "/ws/.git/config", "core.bare", "true"),
        GitSetting("command", "", "a.b", "two\nlines"),
    )


@pytest.mark.parametrize("content", [b"x", b"a\0b\0", b"a\0b\0c\0d"])
def test_other_bytes_are_no_listing(content: bytes):
    assert parse_listing(content, "/ws") is None


def test_a_file_that_is_left_out_says_why(repository: Host):
    path = repository.write("home/.ssh/key", "TOKEN\n")
    repository.write("home/.gitconfig", "[core]\n\texcludesFile = ~/.ssh/key\n")

    assert repository.look().left_out == (LeftOut(str(path), f"it is a secret: {path}"),)
