"""What of the user's git configuration decides what is committed holds in a command, too."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from msgspec import Struct, field

from paddock.sandbox.git_config import take_git
from paddock.sandbox.host.host_facts import GitFacts
from tests.kernel.test_keeping import Shell
from tests.support.shells import OPEN, Terminal, Yard, refused
from tests.support.users import give_to_plain_user

pytestmark = pytest.mark.needs("stage", "git")

WHO = "[user]\n\tname = U\n\temail = u@example.org\n"
LFS = (
    '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n'
    "\tprocess = git-lfs filter-process\n\trequired = true\n"
)


class Person(Struct, dict=True):
    """A user with a git configuration and a repository that is the workspace."""

    base: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def yard(self) -> Yard:
        return Yard(self.base, OPEN, {"GIT_CONFIG_NOSYSTEM": "1", **self.variables})

    def configure(self, text: str, name: str = ".gitconfig") -> None:
        path = self.yard.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *arguments: str) -> str:
        """The user's own git, by their own configuration alone."""
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.yard.root,
            env=self.yard.all_variables,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def write(self, files: dict[str, str | bytes]) -> None:
        self.yard.write(files)

    def run(self, line: str) -> dict:
        with self.yard.opened() as terminal:
            return terminal.run(line)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    made = Person(tmp_path)
    made.yard.make()
    made.configure(WHO)
    made.git("init", "-q", "-b", "main")
    made.git("commit", "-q", "--allow-empty", "-m", "first")
    return made


def commits(said: dict) -> None:
    assert (said["exit_code"], refused(said)) == (0, {}), said


# --- who commits ----------------------------------------------------------------


def author(person: Person, line: str = "git commit -q --allow-empty -m x") -> str:
    commits(person.run(line))
    return person.git("log", "-1", "--format=%an <%ae> %cn <%ce>").strip()


def test_an_include_for_this_directory_says_who_commits(person: Person):
    person.configure(f'{WHO}[includeIf "gitdir:{person.yard.root}/"]\n\tpath = work\n')
    person.configure("[user]\n\temail = u@work.example\n", "work")

    assert author(person) == "U <u@work.example> U <u@work.example>"


def test_an_include_for_another_directory_does_not(person: Person):
    person.configure(f'{WHO}[includeIf "gitdir:/elsewhere/"]\n\tpath = work\n')
    person.configure("[user]\n\temail = u@work.example\n", "work")

    assert author(person) == "U <u@example.org> U <u@example.org>"


def test_an_include_for_a_branch_says_who_commits(person: Person):
    person.configure(f'{WHO}[includeIf "onbranch:main"]\n\tpath = ~/work\n')
    person.configure("[user]\n\tname = M\n", "work")

    assert author(person) == "M <u@example.org> M <u@example.org>"


def test_a_file_outside_that_the_repository_includes_says_who_commits(person: Person):
    person.configure("[user]\n\tname = R\n", "work")
    person.git("config", "include.path", "~/work")

    assert author(person) == "R <u@example.org> R <u@example.org>"


def test_the_repositorys_own_word_stands_over_the_users(person: Person):
    person.git("config", "user.email", "own@example.org")

    assert author(person) == "U <own@example.org> U <own@example.org>"


def test_the_environment_says_who_commits(person: Person):
    person.variables = {"GIT_AUTHOR_NAME": "E", "GIT_COMMITTER_EMAIL": "e@example.org"}

    assert author(person) == "E <u@example.org> U <e@example.org>"


def test_an_e_mail_of_the_environment_counts_where_nobody_says_another(person: Person):
    person.configure("[user]\n\tname = U\n")
    person.variables = {"EMAIL": "env@example.org"}

    assert author(person) == "U <env@example.org> U <env@example.org>"


def test_author_and_committer_of_the_configuration_are_told_apart(person: Person):
    person.configure(f"{WHO}[author]\n\tname = A\n[committer]\n\temail = c@example.org\n")

    assert author(person) == "A <u@example.org> U <c@example.org>"


def test_a_new_repository_of_a_command_has_the_users_name_and_branch(tmp_path: Path):
    person = Person(tmp_path)
    person.yard.make()
    person.configure(f"{WHO}[init]\n\tdefaultBranch = trunk\n")

    said = person.run(
        "git init -q n && cd n && git commit -q --allow-empty -m x"
        " && git log --format='%an <%ae> %D'"
    )

    assert said["stdout"] == "U <u@example.org> HEAD -> trunk\n"


# --- what is committed ----------------------------------------------------------


def staged(person: Person, line: str = "git add -A && git commit -qm x") -> str:
    commits(person.run(line))
    return person.git("ls-tree", "-r", "--name-only", "HEAD")


@pytest.mark.parametrize(
    ("configuration", "name"),
    [
        ("", ".config/git/ignore"),
        ("[core]\n\texcludesFile = ~/mine\n", "mine"),
        ("[core]\n\texcludesFile = {home}/lists/mine\n", "lists/mine"),
    ],
)
def test_what_the_user_ignores_is_not_added(person: Person, configuration: str, name: str):
    person.configure(WHO + configuration.format(home=person.yard.home))
    person.configure("*.swp\n.idea/", name)
    person.write({"a.swp": "x", ".idea/w.xml": "x", "b.txt": "x", "sub/c.swp": "x"})

    assert staged(person) == "b.txt\npaddock.toml\n"
    assert person.git("status", "--short") == ""


def test_a_list_that_a_link_of_the_users_leads_to_counts(person: Person):
    person.configure("*.swp\n", "dotfiles/ignore")
    (person.yard.home / ".config/git").mkdir(parents=True)
    (person.yard.home / ".config/git/ignore").symlink_to("../../dotfiles/ignore")
    person.write({"a.swp": "x", "b.txt": "x"})

    assert staged(person) == "b.txt\npaddock.toml\n"


@pytest.mark.parametrize("place", [".ssh/id_ed25519", ".env", ".aws/credentials"])
def test_a_link_to_a_secret_in_a_lists_place_shows_nobody_the_secret(person: Person, place: str):
    person.configure("TOKEN-OF-THE-USER\n", place)
    (person.yard.home / ".config/git").mkdir(parents=True)
    (person.yard.home / ".config/git/ignore").symlink_to(person.yard.home / place)

    said = person.run("cat ~/.config/git/* ~/.gitconfig; git status --short; env")

    assert "TOKEN-OF-THE-USER" not in said["stdout"]
    assert "name = " in said["stdout"]


@pytest.mark.parametrize("way", ["include", "link"])
def test_a_configuration_that_a_command_can_change_names_no_file_of_the_home(
    person: Person, way: str
):
    person.configure("TOKEN-OF-THE-USER\n", "notes")
    person.write({"shared.conf": WHO + "[core]\n\texcludesFile = ~/notes\n\tautocrlf = input\n"})
    if way == "include":
        person.configure(f"[include]\n\tpath = {person.yard.root}/shared.conf\n")
    else:
        (person.yard.home / ".gitconfig").unlink()
        (person.yard.home / ".gitconfig").symlink_to(person.yard.root / "shared.conf")

    said = person.run("cat ~/.config/git/ignore; cat ~/.gitconfig; git config core.autocrlf")

    assert "TOKEN-OF-THE-USER" not in said["stdout"]
    assert said["stdout"].endswith("input\n")


@pytest.mark.parametrize(
    ("configuration", "blob"),
    [
        ("[core]\n\tautocrlf = input\n", "one\ntwo\n"),
        ("[core]\n\tautocrlf = true\n", "one\ntwo\n"),
        ("[core]\n\tautocrlf = false\n", "one\r\ntwo\r\n"),
        ("", "one\r\ntwo\r\n"),
    ],
)
def test_line_ends_are_committed_as_on_the_host(person: Person, configuration: str, blob: str):
    person.configure(WHO + configuration)
    person.write({"a.txt": b"one\r\ntwo\r\n"})

    commits(person.run("git add a.txt && git commit -qm x"))

    # Where a blob has carriage returns its size says so.
    assert person.git("cat-file", "-s", "HEAD:a.txt") == f"{len(blob)}\n"
    assert person.git("status", "--short", "a.txt") == ""


def test_safecrlf_refuses_in_a_command_as_on_the_host(person: Person):
    person.configure(f"{WHO}[core]\n\tautocrlf = true\n\tsafecrlf = true\n")
    person.write({"a.txt": "one\ntwo\r\n"})

    said = person.run("git add a.txt")

    assert said["exit_code"] == 128
    assert "would be replaced" in said["stderr"]


def test_eol_of_the_user_says_how_a_text_is_checked_out(person: Person):
    person.configure(f"{WHO}[core]\n\teol = crlf\n")
    person.write({".gitattributes": "*.txt text\n", "a.txt": "one\n"})
    person.git("add", ".")
    person.git("commit", "-qm", "x")

    commits(person.run("rm a.txt && git checkout -q a.txt"))

    assert (person.yard.root / "a.txt").read_bytes() == b"one\r\n"


def test_attributes_of_the_users_own_count(person: Person):
    person.configure("*.dat -text\n*.txt text eol=lf\n", ".config/git/attributes")
    person.write({"a.txt": b"x\r\n", "a.dat": b"x\r\n"})

    commits(person.run("git add . && git commit -qm x"))

    rows = person.git("ls-files", "--eol", "a.txt", "a.dat")
    assert [row.split()[0] for row in rows.splitlines()] == ["i/crlf", "i/lf"]


def test_names_are_printed_as_the_user_wants_them(person: Person):
    person.configure(f"{WHO}[core]\n\tquotePath = false\n")
    person.write({"é.txt": "x"})

    assert person.run("git status --short é.txt")["stdout"] == "?? é.txt\n"


def test_a_conflict_looks_as_the_user_wants_it(person: Person):
    person.configure(f"{WHO}[merge]\n\tconflictStyle = diff3\n")
    person.write({"a": "base\n"})

    said = person.run(
        "git add a && git commit -qm a && git checkout -qb o && echo o > a && git commit -qam o"
        " && git checkout -q main && echo m > a && git commit -qam m; git merge o; cat a"
    )

    assert "|||||||" in said["stdout"]
    assert "base" in said["stdout"]


# --- what never comes -----------------------------------------------------------

SECRETS = """[url "https://token-1@example.org/"]
	insteadOf = https://example.org/
[http]
	extraHeader = Authorization: token-2
[credential]
	helper = !echo password=token-3
[alias]
	st = !echo token-4
	co = checkout
[core]
	sshCommand = ssh -i token-5
	editor = token-6
	pager = token-7
	hooksPath = token-8
	fsmonitor = token-9
[sendemail]
	smtpPass = token-10
[user]
	signingKey = token-11
[gpg]
	program = token-12
[diff "x"]
	textconv = token-13
"""


def test_no_secret_and_no_program_of_the_users_configuration_reaches_a_command(person: Person):
    person.configure(WHO + SECRETS)

    said = person.run("cat ~/.gitconfig; env; git config --list; git st")

    assert "token-" not in said["stdout"] + said["stderr"]
    assert "user.name=U" in said["stdout"]


@pytest.mark.parametrize(
    "name",
    ['A "B" \\ C', "; x # y", "  led  ", "[core] pager = x", "ü 漢", '"\\n[core]\\n\\tpager = x"'],
)
def test_a_value_is_a_value_whatever_stands_in_it(person: Person, name: str):
    person.git("config", "--global", "user.name", name)

    said = person.run("git config user.name; git config core.pager")

    assert said["stdout"] == f"{name}\n"


def test_a_value_of_two_lines_is_not_taken(person: Person):
    person.git("config", "--global", "merge.conflictStyle", "diff3\n[core]\n\tpager = x")

    said = person.run("git config merge.conflictStyle; git config core.pager; git config user.name")

    assert said["stdout"] == "U\n"


def test_nothing_that_a_cloned_repository_names_is_run_on_the_host(person: Person):
    mark = person.base / "ran"
    touch = f"touch {mark}"
    for key in (
        *("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "pager.config"),
        *(
            "alias.config",
            "alias.status",
            "credential.helper",
            "filter.x.clean",
            "filter.x.process",
        ),
        *("diff.external", "gpg.program", "core.askPass", "uploadpack.packObjectsHook"),
    ):
        person.git("config", key, f"!{touch}" if key.startswith("alias") else touch)
    person.git("config", "core.hooksPath", "hooks")
    person.write(
        {".gitattributes": "* filter=x\n", "hooks/post-index-change": f"#!/bin/sh\n{touch}\n"}
    )
    (person.yard.root / "hooks/post-index-change").chmod(0o755)

    said = person.run("echo on")

    assert said["stdout"] == "on\n"
    assert not mark.exists()


def test_a_program_of_the_workspace_on_path_is_not_asked(person: Person):
    mark = person.base / "ran"
    person.write({".venv/bin/git": f'#!/bin/sh\ntouch {mark}\nexec /usr/bin/git "$@"\n'})
    (person.yard.root / ".venv/bin/git").chmod(0o755)
    person.variables = {"PATH": f"{person.yard.root}/.venv/bin:{os.environ['PATH']}"}

    said = person.run("git var GIT_AUTHOR_IDENT")

    assert said["stdout"].startswith("U <u@example.org> ")
    assert not mark.exists()


@pytest.mark.parametrize("what", ["a FIFO", "a huge file"])
def test_a_configuration_without_an_end_keeps_no_command_waiting(person: Person, what: str):
    path = person.base / "endless"
    if what == "a FIFO":
        os.mkfifo(path)
    else:
        path.write_text("[x]\n" + "a = b\n" * 400_000)
    person.git("config", "include.path", str(path))

    said = person.run("echo on")

    assert said["stdout"] == "on\n"


# --- filters --------------------------------------------------------------------


def lfs_repository(person: Person, configuration: str = LFS) -> bytes:
    person.configure(WHO + configuration)
    person.write({".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    person.git("add", ".gitattributes")
    person.git("commit", "-qm", "attributes")
    content = os.urandom(70_000)
    person.write({"a.bin": content})
    return content


@pytest.mark.needs("git-lfs")
def test_a_large_file_is_committed_as_a_pointer(person: Person):
    content = lfs_repository(person)
    # As after the user's own first use: git-lfs puts hooks there, which no command may.
    person.git("lfs", "install", "--local")

    commits(person.run("git add a.bin && git commit -qm x"))

    blob = person.git("cat-file", "blob", "HEAD:a.bin")
    assert blob.startswith("version https://git-lfs.github.com/spec/v1\n")
    assert (person.yard.root / "a.bin").read_bytes() == content
    (person.yard.root / "a.bin").unlink()
    person.git("checkout", "-q", "a.bin")
    assert (person.yard.root / "a.bin").read_bytes() == content
    assert person.git("status", "--short", "a.bin") == ""
    assert person.git("lfs", "fsck") == "Git LFS fsck OK\n"


@pytest.mark.needs("git-lfs")
def test_a_large_file_is_checked_out_whole(person: Person):
    content = lfs_repository(person)
    person.git("lfs", "install", "--local")
    person.git("add", "a.bin")
    person.git("commit", "-qm", "x")

    commits(person.run("git checkout -q HEAD~1 && test ! -e a.bin && git checkout -q main"))

    assert (person.yard.root / "a.bin").read_bytes() == content


def test_a_plain_filter_of_the_users_runs_in_the_command(person: Person):
    person.configure(f'{WHO}[filter "up"]\n\tclean = tr a-z A-Z\n')
    person.write({".gitattributes": "*.up filter=up\n", "a.up": "text\n"})

    commits(person.run("git add . && git commit -qm x && rm a.up && git checkout a.up"))

    assert person.git("cat-file", "blob", "HEAD:a.up") == "TEXT\n"


NOT_THERE = (
    '[filter "{name}"]\n\tclean = {program} clean\n\tsmudge = {program} smudge\n'
    "\tprocess = {program} all\n"
)


@pytest.mark.parametrize(
    "where", ["nobody has it", "the user's is not there", "the repository's is not there"]
)
@pytest.mark.parametrize("name", ["lfs", "git-crypt", "notebooks"])
def test_a_file_whose_filter_is_not_there_is_not_committed(person: Person, name: str, where: str):
    lines = NOT_THERE.format(name=name, program=person.base / "no-such-program")
    if where.startswith("the user"):
        person.configure(WHO + lines)
    elif where.startswith("the repository"):
        with (person.yard.root / ".git/config").open("a") as config:
            config.write(lines)
    person.write({".gitattributes": f"*.bin filter={name}\n", "a.bin": "raw"})
    before = person.git("rev-parse", "HEAD")

    said = person.run("git add -A && git commit -qm x")

    assert said["exit_code"] == 128
    assert f"paddock: git filter {name} has no program in this sandbox" in said["stderr"]
    assert person.git("rev-parse", "HEAD") == before
    assert "a.bin" not in person.git("ls-files")


@pytest.mark.parametrize("where", ["deeper", "info"])
def test_a_well_known_filter_is_missed_wherever_it_is_named(person: Person, where: str):
    name = "d/.gitattributes" if where == "deeper" else ".git/info/attributes"
    person.write({name: "*.bin filter=lfs\n", "d/a.bin": "raw"})

    assert person.run("git add d/a.bin")["exit_code"] == 128
    assert person.git("ls-files") == ""


def test_other_files_are_committed_though_a_filter_is_not_there(person: Person):
    person.write({".gitattributes": "*.bin filter=lfs\n", "a.txt": "x\n"})

    assert staged(person) == ".gitattributes\na.txt\npaddock.toml\n"


def test_a_pointer_is_committed_though_git_lfs_is_not_there(person: Person):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
    person.write({".gitattributes": "*.bin filter=lfs\n", "a.bin": pointer})

    commits(person.run("git add -A && git commit -qm x && rm a.bin && git checkout -q a.bin"))

    assert person.git("cat-file", "blob", "HEAD:a.bin") == pointer
    assert (person.yard.root / "a.bin").read_text() == pointer


def test_a_filter_of_the_repositorys_own_that_fails_commits_nothing_raw(person: Person):
    person.git("config", "filter.own.clean", f"sh {person.base}/script.sh")
    person.write({".gitattributes": "*.bin filter=own\n", "a.bin": "raw"})

    assert person.run("git add a.bin")["exit_code"] == 128
    assert person.git("ls-files") == ""


# --- signing --------------------------------------------------------------------

SIGNED = "commits and tags made in a sandbox are not signed"


@pytest.mark.parametrize("where", ["--global", "--local"])
@pytest.mark.parametrize("kind", ["openpgp", "ssh", "x509"])
def test_where_commits_are_signed_a_commands_are_not_and_it_says_so_once(
    person: Person, where: str, kind: str
):
    for key, value in (
        ("commit.gpgSign", "true"),
        ("tag.gpgSign", "true"),
        ("gpg.format", kind),
        ("user.signingKey", "KEY"),
        (f"gpg.{kind}.program", "no-such-program"),
    ):
        person.git("config", where, key, value)

    with person.yard.opened() as terminal:
        none = terminal.call("run_shell", command="true")
        first = terminal.call("run_shell", command="git commit -q --allow-empty -m x")
        second = terminal.call("run_shell", command="git tag -m v v1")

    assert [each.details["exit_code"] for each in (none, first, second)] == [0, 0, 0]
    assert [SIGNED in each.content for each in (none, first, second)] == [False, True, False]
    assert "gpgsig" not in person.git("cat-file", "-p", "HEAD")
    assert "-----BEGIN" not in person.git("cat-file", "-p", "v1")


def test_where_nothing_is_signed_nothing_is_said(person: Person):
    with person.yard.opened() as terminal:
        said = terminal.call("run_shell", command="git commit -q --allow-empty -m x")

    assert SIGNED not in said.content


# --- editors --------------------------------------------------------------------


def fails_at_once(terminal: Terminal, line: str) -> str:
    said = terminal.run(line, timeout=20)
    assert not said["timed_out"], said
    assert said["exit_code"] not in (0, -1), said
    return said["stderr"]


@pytest.mark.parametrize("own", ["", "vi", "nano", "sh -c 'sleep 1000'"])
@pytest.mark.parametrize(
    "line",
    [
        "git commit --allow-empty",
        "git commit --amend --allow-empty",
        "git commit -v --amend --allow-empty",
        "git tag -a v1",
        "git rebase -i --root",
        "git notes add",
        "git branch --edit-description",
    ],
)
def test_a_line_that_wants_an_editor_fails_at_once_and_says_what_to_do(
    person: Person, line: str, own: str
):
    if own:
        person.git("config", "core.editor", own)
        person.git("config", "sequence.editor", own)

    with person.yard.opened() as terminal:
        assert "no editor runs in a sandbox" in fails_at_once(terminal, line)


def test_other_programs_find_the_same_editor(person: Person):
    with person.yard.opened() as terminal:
        assert "no editor runs" in fails_at_once(terminal, 'sh -c "$EDITOR file"')
        assert terminal.run("echo $PAGER $GIT_TERMINAL_PROMPT")["stdout"] == "cat 0\n"


@pytest.mark.parametrize(
    "line",
    [
        "GIT_EDITOR=true git commit -q --amend --allow-empty",
        "EDITOR=true git commit -q --amend --allow-empty",
        "TERM=xterm VISUAL=true git commit -q --amend --allow-empty",
        "git -c core.editor=true commit -q --amend --allow-empty",
        "git commit -q --amend --no-edit --allow-empty",
        "export GIT_EDITOR=true; git commit -q --amend --allow-empty",
        "GIT_SEQUENCE_EDITOR=: git rebase -q -i --root",
    ],
)
def test_an_editor_that_the_line_names_is_the_one(person: Person, line: str):
    commits(person.run(line))


def test_a_merge_waits_for_nobody(person: Person):
    said = person.run(
        "git checkout -qb o && git commit -q --allow-empty -m o && git checkout -q main"
        " && git commit -q --allow-empty -m m && git merge --no-ff o"
    )

    commits(said)
    assert person.git("log", "-1", "--format=%s") == "Merge branch 'o'\n"


# --- whose it is ----------------------------------------------------------------


@pytest.mark.needs("root")
def test_started_by_root_a_command_finds_the_repository_of_another_user(person: Person):
    person.git("config", "user.email", "own@example.org")
    for path in (person.yard.root, *person.yard.root.rglob("*")):
        os.chown(path, 12_345, 12_345, follow_symlinks=False)

    said = person.run("git log --format=%s && git config user.email")

    assert (said["stdout"], said["exit_code"]) == ("first\nown@example.org\n", 0)


def test_a_folder_that_looks_like_a_repository_is_none_unless_it_is_named(person: Person):
    person.git("init", "-q", "--bare", "bare")

    said = person.run(
        "cd bare && git rev-parse --is-bare-repository; git --git-dir=. rev-parse --is-bare-repository"
    )

    assert said["stdout"] == "true\n"
    assert shlex.quote(str(person.yard.root / "bare")) in said["stderr"]


# --- without namespaces ---------------------------------------------------------


@pytest.fixture
def held(tmp_path: Path):
    """A workspace whose commands Landlock holds, with a repository and a user's configuration."""
    root = tmp_path / "ws"
    (root / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    (root / "a.swp").write_text("x")
    (root / "b.txt").write_text("x")
    give_to_plain_user(root)
    facts = GitFacts(
        values=(("user.name", "U"), ("user.email", "u@example.org")),
        ignored="*.swp\n",
        attributes="*.txt filter=gone\n",
        filter_names=("gone",),
    )
    shell = Shell(root)
    shell.git_config = take_git(facts, ("/usr",))[0]
    return shell


@pytest.mark.needs("landlock")
@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("git var GIT_AUTHOR_IDENT | cut -d '>' -f 1", 0, b"U <u@example.org\n"),
        ("git status --short", 0, b"?? b.txt\n"),
        ("cd $TMPDIR && git init -q n && cd n && touch f && git add f && git commit", 1, b""),
        ("git check-attr filter b.txt", 0, b"b.txt: filter: gone\n"),
        ("git hash-object b.txt", 128, b""),
        ("GIT_EDITOR=true git var GIT_EDITOR", 0, b"true\n"),
    ],
)
def test_under_landlock_the_same_configuration_holds(held: Shell, line: str, status: int, said):
    end = held.line(line)

    assert (end.exit_code, end.stdout.head) == (status, said), end
    if status == 1:
        assert b"no editor runs in a sandbox" in end.stderr.head
    if status == 128:
        assert b"git filter gone has no program" in end.stderr.head
