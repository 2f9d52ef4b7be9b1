"""Closed names: found without walking twice, and never missed when the tree changes."""

import os
import random
import time

import pytest

from paddock import limits
from paddock.errors import SandboxUnavailableError
from paddock.policy.engine import PolicySource, load_policy
from paddock.sandbox.hidden import NameIndex, wait_for_a_tick
from paddock.sandbox.plan import Closing, ReadJudge, WriteJudge
from paddock.values.decisions import Agent, Permissions
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.disks import dig
from tests.support.users import give_to_plain_user, run_as_plain_user

HOUR_NS = 3_600_000_000_000
MAIN = (Agent("main", "standard"),)


def reading(text: str = "", chain=MAIN) -> ReadJudge:
    return ReadJudge(load_policy(PolicySource("paddock.toml", text.encode())), chain)


def writing(text: str = "", chain=MAIN) -> WriteJudge:
    return WriteJudge(load_policy(PolicySource("paddock.toml", text.encode())), chain)


def later() -> int:
    """A clock by which every directory changed long ago, so that readings are kept."""
    return time.time_ns() + HOUR_NS


class Tree:
    """A workspace with its index."""

    def __init__(self, root, judge=None, clock=later, resolution=None) -> None:
        self.root = root
        self.index = NameIndex(judge or reading(), resolution, clock)
        self.fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
        self.known = {}

    def make(self, *paths: str) -> None:
        for path in paths:
            place = self.root / path.rstrip("/")
            if path.endswith("/"):
                place.mkdir(parents=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(b"x")

    def find(self) -> tuple[str, ...]:
        survey = self.index.survey(self.fd)
        self.known = survey.directories
        return survey.closed

    def reads(self) -> int:
        """How many directories it reads now: what it knows stays the same object."""
        before = self.known
        self.find()
        return sum(before.get(path) is not found for path, found in self.known.items())


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "ws").mkdir()
    made = Tree(tmp_path / "ws")
    yield made
    os.close(made.fd)


def test_secret_names_are_found_at_every_depth_nested_repositories_included(tree):
    tree.make(
        ".env",
        "src/a.py",
        "src/deep/x/.env.local",
        "vendor/m/n/a.key",
        "sub/.git/refs/heads/a.key",
        ".env.d/anything",
        "Src/UPPER.KEY",
    )
    assert tree.find() == (
        ".env",
        ".env.d",
        "Src/UPPER.KEY",
        "src/deep/x/.env.local",
        "sub/.git/refs/heads/a.key",
        "vendor/m/n/a.key",
    )


def test_a_survey_says_which_directories_stood_where(tree):
    tree.make("src/deep/x", ".env.d/inner/x", "f")
    os.chmod(tree.root / "src", 0o710)
    survey = tree.index.survey(tree.fd)
    looks = {path: os.stat(tree.root / path) for path in (".", "src", "src/deep")}

    assert survey.closed == (".env.d",)
    assert {path: (each.identity[:2], each.mode) for path, each in survey.directories.items()} == {
        path: ((look.st_dev, look.st_ino), look.st_mode & 0o7777) for path, look in looks.items()
    }


def test_a_survey_stays_as_it_was_when_the_index_is_asked_again(tree):
    tree.make("a/f", "b/f")
    first = tree.index.survey(tree.fd)
    (tree.root / "a").rename(tree.root / "c")

    assert set(tree.index.survey(tree.fd).directories) == {".", "b", "c"}
    assert set(first.directories) == {".", "a", "b"}


def test_asked_again_only_what_changed_is_read(tree):
    tree.make(*(f"a{number}/b/c/f" for number in range(20)), "z.key")
    assert tree.reads() == 61
    assert tree.reads() == 0
    tree.make("a3/b/new.key")
    assert tree.reads() == 1
    assert tree.find() == ("a3/b/new.key", "z.key")
    (tree.root / "a3/b/new.key").unlink()
    assert (tree.reads(), tree.find()) == (1, ("z.key",))


def test_a_change_whose_time_was_set_back_is_seen(tree):
    tree.make("a/f")
    tree.find()
    before = os.stat(tree.root / "a")
    tree.make("a/.env")
    os.utime(tree.root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert tree.find() == ("a/.env",)


def test_a_renamed_directory_is_found_under_its_new_name(tree):
    tree.make("a/b/.env", "c/")
    assert tree.find() == ("a/b/.env",)
    (tree.root / "a").rename(tree.root / "c/d")
    assert tree.find() == ("c/d/b/.env",)


def test_two_directories_that_changed_places_are_read_anew(tree):
    tree.make("a/x/.env", "b/x/f")
    assert tree.find() == ("a/x/.env",)
    (tree.root / "a").rename(tree.root / "t")
    (tree.root / "b").rename(tree.root / "a")
    (tree.root / "t").rename(tree.root / "b")
    assert tree.find() == ("b/x/.env",)


def test_anchored_patterns_follow_a_renamed_directory(tree):
    tree.index = NameIndex(reading('[paths]\nsecret = ["/vault/"]\n'), clock_ns=later)
    tree.make("open/f")
    assert tree.find() == ()
    (tree.root / "open").rename(tree.root / "vault")
    assert tree.find() == ("vault",)
    (tree.root / "vault").rename(tree.root / "open")
    assert tree.find() == ()


def test_a_directory_that_changed_just_now_is_read_again(tree):
    import time

    tree.index = NameIndex(reading(), clock_ns=time.time_ns)
    tree.make("a/f")
    tree.find()
    # Within the same tick of the clock its times would tell nothing.
    assert tree.reads() == 2


def test_links_are_neither_closed_nor_followed(tree, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/.env").write_bytes(b"x")
    tree.make("f")
    (tree.root / ".env").symlink_to("f")
    (tree.root / "out").symlink_to(tmp_path / "outside")
    assert tree.find() == ()


@pytest.mark.parametrize(
    "resolution",
    [pytest.param(Openat2Resolution, marks=pytest.mark.needs("openat2")), WalkResolution],
)
def test_a_directory_swapped_for_a_link_out_is_not_entered(tmp_path, resolution):
    (tmp_path / "outside/b").mkdir(parents=True)
    (tmp_path / "outside/b/.env").write_bytes(b"x")
    (tmp_path / "ws").mkdir()
    tree = Tree(tmp_path / "ws", resolution=resolution())
    tree.make("a/b/f")
    tree.find()
    (tree.root / "a").rename(tree.root / "gone")
    (tree.root / "a").symlink_to(tmp_path / "outside")
    assert tree.find() == ()
    os.close(tree.fd)


def test_names_that_are_no_text_are_judged_too(tree):
    with open(os.fsencode(tree.root) + b"/bad\xff.key", "wb"):
        pass
    assert tree.find() == ("bad\udcff.key",)


def test_a_draft_of_paddocks_own_is_closed(tree):
    draft = ".paddock-" + "0" * 32 + ".tmp"
    tree.make(f"a/{draft}", "a/.paddock-notes.tmp")
    assert tree.find() == (f"a/{draft}",)


def test_a_directory_that_cannot_be_looked_into_is_closed(tmp_path):
    (tmp_path / "ws").mkdir()
    tree = Tree(tmp_path / "ws")
    tree.make("shut/f", "open/.env")
    give_to_plain_user(tree.root)
    os.chmod(tree.root / "shut", 0)

    def act():
        assert tree.find() == ("open/.env", "shut")

    run_as_plain_user(act)
    os.close(tree.fd)


def test_where_paths_become_too_long_to_be_hidden_the_directory_is_closed(tree):
    tree.make("a/.env")
    name = "d" * 200
    dig(tree.root, name, 25)

    assert tree.find() == ("a/.env", "/".join([name] * 16))


def test_too_many_names_or_directories_refuse(tree, monkeypatch):
    tree.make("a/x.key", "a/y.key", "b/f")
    monkeypatch.setattr(limits, "closed_names_max", 1)
    with pytest.raises(SandboxUnavailableError, match="more than 1 names"):
        tree.find()
    monkeypatch.setattr(limits, "closed_names_max", 2)
    monkeypatch.setattr(limits, "closed_directories_max", 2)
    with pytest.raises(SandboxUnavailableError, match="more than 2 directories"):
        tree.find()
    monkeypatch.setattr(limits, "closed_directories_max", 3)
    assert tree.find() == ("a/x.key", "a/y.key")


def test_a_tree_that_changes_at_random_is_told_as_a_new_walk_tells_it(tree):
    order = random.Random(7)
    names = ["a", "b", "c.key", ".env", "d"]
    for _ in range(300):
        parts = [order.choice(names) for _ in range(order.randint(1, 4))]
        place, other = tree.root.joinpath(*parts), tree.root / order.choice(names)
        act = order.choice(["file", "directory", "remove", "rename"])
        try:
            if act == "file":
                place.write_bytes(b"x")
            elif act == "directory":
                place.mkdir(parents=True)
            elif act == "remove":
                place.rmdir() if place.is_dir() else place.unlink()
            else:
                place.rename(other)
        except OSError:
            continue
        assert tree.find() == NameIndex(reading()).find(tree.fd)
        # By this tree's clock all is long past: two changes within one tick would be one.
        wait_for_a_tick(time.time_ns())


# --- judges ------------------------------------------------------------------


PROFILES = """
[profiles.views]
allow = ["tool:file:*"]
deny = ["tool:file:view vault/**"]
ask = ["tool:file:view ask.txt", "tool:file:create gen/**"]

[profiles.runs]
allow = ["tool:shell:*"]
"""


def test_what_a_profile_denies_or_asks_about_is_closed_to_reading():
    judge = reading(PROFILES, (Agent("main", "views"),))
    said = {path: judge.judge(path, False) for path in ("vault/a", "ask.txt", "a", "gen/x")}
    assert said == {
        "vault/a": Closing.SEALED,
        "ask.txt": Closing.SEALED,
        "a": Closing.OPEN,
        "gen/x": Closing.OPEN,
    }


def test_a_profile_that_lets_no_file_be_viewed_closes_every_file():
    judge = reading(PROFILES, (Agent("main", "runs"),))
    assert judge.judge("a", False) is Closing.SEALED
    assert judge.judge("a", True) is Closing.OPEN


def test_an_agents_lists_close_what_its_file_tools_cannot_view():
    permissions = Permissions(read=("docs/**", "/src/lib/"), forbidden=("docs/private/",))
    judge = reading(chain=(Agent("main", "standard", permissions=permissions),))
    said = {
        (path, is_directory): judge.judge(path, is_directory).value
        for path, is_directory in (
            ("docs", True),
            ("docs/a", False),
            ("docs/private", True),
            ("src", True),
            ("src/lib", True),
            ("src/other", True),
            ("src/a", False),
            ("tests", True),
        )
    }
    assert said == {
        ("docs", True): "open",
        ("docs/a", False): "open",
        ("docs/private", True): "sealed",
        ("src", True): "open",
        ("src/lib", True): "open",
        ("src/other", True): "sealed",
        ("src/a", False): "sealed",
        ("tests", True): "sealed",
    }


def test_a_parents_lists_close_names_for_its_child():
    parent = Agent("lead", "standard", permissions=Permissions(forbidden=("notes/",)))
    judge = reading(chain=(Agent("main", "open", parent="lead"), parent))
    assert judge.judge("notes", True) is Closing.SEALED
    assert judge.judge("other", True) is Closing.OPEN


def test_an_untrusted_file_closes_more():
    policy = load_policy(
        PolicySource("paddock.toml", b'[paths]\nsecret = ["*.txt"]\n', trusted=False)
    )
    judge = ReadJudge(policy, MAIN)
    assert [judge.judge(path, False) for path in ("a.txt", ".env", "a")] == [
        Closing.SEALED,
        Closing.SEALED,
        Closing.OPEN,
    ]


def test_nobody_may_read_or_write_anything():
    assert reading(chain=()).judge("a", False) is Closing.SEALED
    assert writing(chain=()).judge("a", False) is Closing.SEALED


def test_what_may_not_be_written_is_closed_to_writing():
    judge = writing(
        PROFILES, (Agent("main", "views", permissions=Permissions(write=("a", "gen/**"))),)
    )
    said = {
        path: judge.judge(path, False).value
        for path in ("a", "b", "gen/x", "x.pem", ".env", ".git")
    }
    assert said == {
        "a": "open",
        "b": "closed",
        "gen/x": "closed",
        "x.pem": "sealed",
        ".env": "sealed",
        ".git": "sealed",
    }


def test_what_is_generated_is_open_to_commands():
    assert writing().judge("node_modules/x", False) is Closing.OPEN
