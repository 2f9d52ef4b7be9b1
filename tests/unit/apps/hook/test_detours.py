"""What a call reaches by a detour: `cd` in a script, `..` behind a link, patterns of the shell."""

import pytest

from paddock.apps.hook.lean.judge import DIRECTORIES_MAX, resolve_cd
from paddock.apps.hook.lean.request import ShapeError
from tests.support.hooks import Client

PATCH = "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"


def run(client: Client, command: str, cwd: str = "{root}") -> str:
    return client.ask("Bash", cwd=cwd, tool_input={"command": command}).word


def make(client: Client, *names: str) -> None:
    for name in names:
        path = client.place.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


@pytest.fixture
def linked(client: Client) -> Client:
    """A client whose project has `docs/deep`, a link to `a/b/c`."""
    make(client, "a/b/c/x", "docs/x", ".env")
    (client.place.project / "docs/deep").symlink_to("../a/b/c")
    return client


def test_a_script_in_a_line_is_judged_where_it_goes(client: Client):
    make(client, "src/x")
    commands = [
        "bash -lc 'cd .git && echo x > config'",
        "bash -c 'cd ../outside && rm kept.txt'",
        "sh -c 'cd ..; rm -rf outside'",
        "sh -c 'sh -c \"cd .git; rm config\"'",
        "ls && bash -c 'cd .git; touch a' && ls",
        "env X=1 bash -c 'cd .git && touch a'",
        "bash -c 'cd .git && touch a' x",
        "git -c alias.x='!cd .git; rm config' x",
        "eval 'cd .git'; touch a",
        "echo $'\\'' ; cd .git; echo x > config; echo $'\\'' \\'",
        "cd src && bash -c 'ls' > ../../log",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "deny")


def test_an_ordinary_script_goes_its_usual_way(client: Client):
    make(client, "src/x")
    commands = [
        "bash -lc 'cd src && echo x > ../a.txt'",
        "bash -lc 'cd src && ls' && echo x > a.txt",
        "bash -c 'cd src; touch ../a' > log.txt",
        "cd src && bash -c 'ls' > ../log",
        "bash -lc 'npm test && touch done'",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "none")


def test_a_step_that_may_not_be_taken_leaves_the_line_where_it_was(client: Client):
    make(client, "docs/x")
    commands = [
        "cd .git; false && cd ../docs; touch a",
        "cd .git; true || cd ../docs; touch a",
        "cd .git; ls | cd ../docs; touch a",
        "cd .git; cd ../docs & touch a",
        "cd .git; true || cd ../docs && touch a",
        "cd .git; ls | cd ../docs && touch a",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "deny")


def test_a_step_that_is_surely_taken_counts(client: Client):
    make(client, "docs/x")
    commands = [
        "mkdir -p new && cd new && touch ../x && ls",
        "mkdir -p new && cd new && touch ../x; ls",
        "cd docs; cd ..; touch docs/y",
        "ls; cd docs; touch ../y",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "none")


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("for i in 1 2; do cd ..; done; rm -f hooks", "ask"),
        ("while false; do cd ..; done; touch y", "ask"),
        ("up() { cd ..; }; up; up; touch y", "ask"),
        ("for i in 1 2; do (cd e && touch y); done", "ask"),
        ("cd e && while false; do touch y; done", "none"),
        ("f() { touch y; }; cd e && f", "ask"),
    ],
)
def test_a_directory_that_is_changed_again_and_again_is_asked_about(command, word, client: Client):
    make(client, "docs/d/e/x")
    assert run(client, command, cwd="{root}/docs/d") == word


@pytest.mark.parametrize("before", ["cd .git && ", "cd .git; ", "ls && cd .git && ", "(cd .git; "])
def test_a_patch_is_judged_where_the_line_stands(before, client: Client):
    document = f"apply_patch <<'EOF'\n{PATCH.format('hooks/x')}\nEOF"
    end = "\n)" if before.startswith("(") else ""

    assert run(client, before + document + end) == "deny"
    assert run(client, before.replace(".git", "src") + document + end) == "none"


def test_a_patch_in_quotes_is_judged_where_the_line_stands(client: Client):
    assert run(client, f"cd .git && apply_patch '{PATCH.format('hooks/x')}'") == "deny"
    assert run(client, f"cd src && apply_patch '{PATCH.format('../a.txt')}'") == "none"
    assert run(client, f"cd src && apply_patch '{PATCH.format('../../a.txt')}'") == "deny"


def test_a_patch_is_read_without_its_quotes_too(client: Client):
    moved = PATCH.format("docs/x'/../../server.key'")

    assert run(client, f"apply_patch '{moved}'") == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "cd docs/deep/../../.. && echo x > outside/kept.txt",
        "cd docs/deep && cd ../../.. && rm outside/kept.txt",
        "cd docs/deep; cd ../..; rm -f .env",
        "cd docs/deep && cd ../.. && rm .e*",
        "cd docs/deep && rm ../../../.env",
        "cd -P docs/deep && cd ../../.. && rm .env",
        "rm docs/deep/../../../.env",
    ],
)
def test_behind_a_link_both_ways_up_are_judged(command, linked: Client):
    assert run(linked, command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "cd docs/deep && touch y",
        "cd docs/deep && touch ../../y",
        "cd docs/deep && cd .. && touch y",
        "cd docs && cd deep && cd .. && touch x",
        "rm docs/deep/x",
        "rm docs/../docs/x",
        "cp docs/deep/../c/x y",
    ],
)
def test_links_inside_the_project_go_their_usual_way(command, linked: Client):
    assert run(linked, command) == "none"


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("docs/deep/../../../outside/new", "deny"),
        ("docs/deep/../../.env", "deny"),
        ("docs/deep/../../../.env", "deny"),
        ("{root}/docs/deep/../../../outside/new", "deny"),
        ("docs/deep/../new", "none"),
        ("docs/../a/new", "none"),
        ("docs/deep/new", "none"),
    ],
)
def test_a_path_of_a_patch_or_a_tool_is_judged_both_ways_up(path, word, linked: Client):
    patch = linked.filled(PATCH.replace("{}", path))
    assert linked.ask("apply_patch", tool_input={"command": patch}).word == word
    assert linked.ask("Write", tool_input={"file_path": path}).word == word


def test_where_a_shell_may_stand(linked: Client):
    root = linked.root

    assert resolve_cd(root, (), "/home/a") == (root,)
    assert resolve_cd(root, ("docs", ".."), "/home/a") == (root,)
    assert resolve_cd(root, ("docs/deep", ".."), "/home/a") == (
        f"{root}/docs",
        f"{root}/a/b",
    )
    assert resolve_cd(root, ("docs", "~/x"), "/home/a") == ("/home/a/x",)


def test_links_that_lead_to_too_many_directories_are_refused(client: Client):
    # From each directory `..` goes up by text to one, and behind the link to another.
    here = client.place.project
    for _ in range(DIRECTORIES_MAX):
        here = here / "d"
        here.mkdir()
        (here / "up").symlink_to("d/d")
    wanted = ("d/up", "..") * DIRECTORIES_MAX

    with pytest.raises(ShapeError, match="may lead to more than"):
        resolve_cd(client.root, wanted, "/home/a")


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("rm -rf .[^.]*", "deny"),
        ("rm -rf .[!.]*", "deny"),
        ("mv .[^.]* docs/", "deny"),
        ("cp a.txt server.[^x]ey", "deny"),
        ("rm ~/../project/.e*", "deny"),
        ("rm .[[:alpha:]]*", "ask"),
        ("rm .[a[:digit:]]*", "ask"),
        ("rm .[[=e=]]nv", "ask"),
        ("rm .[[.e.]]nv", "ask"),
        ("shopt -s dotglob; rm sub/*", "ask"),
        ("shopt -s nocaseglob; rm .EN?", "ask"),
        ("cd sub && shopt -s dotglob && rm *", "ask"),
        ("GLOBIGNORE=x; rm sub/*", "ask"),
        ("export GLOBIGNORE=x; rm sub/*", "ask"),
        ("bash -O dotglob -c 'rm sub/*'", "ask"),
        ("'shop't -s dotglob; rm sub/*", "ask"),
    ],
)
def test_a_pattern_stands_for_what_the_shell_makes_of_it(
    command, word, client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(client.place.home))
    make(client, ".env", "server.key", "a.txt", "docs/x", "sub/.env", "sub/x")
    assert run(client, command) == word


def test_an_ordinary_pattern_goes_its_usual_way(client: Client):
    make(client, ".env", "a.md", "docs/x", "sub/x", "app/[id].tsx")
    commands = [
        "rm *.md",
        "rm [^s]*.md",
        "rm sub/*",
        "rm docs/[a-z]",
        "shopt -s dotglob; ls sub",
        "shopt -s globstar; grep -rn x **",
        "touch 'app/[[...slug]]/page.tsx'",
        "rm 'app/[id].tsx'",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "none")
