"""What of the servers that the user's ssh knows is shown to a command."""

import base64
import hmac

from paddock.sandbox.connections import read_known_hosts, select_entries

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"


def reach_git(host: str, port: int) -> bool:
    return (host, port) in {("git.example.org", 22), ("git.example.org", 2222)}


def test_entries_of_hosts_that_may_be_reached_are_shown_with_those_names_alone():
    text = (
        f"git.example.org,10.0.0.7 {KEY} a comment\n"
        f"[git.example.org]:2222,[other.example.org]:2222 {KEY}\n"
        f"other.example.org {KEY}\n"
        f"[git.example.org]:99 {KEY}\n"
    )

    assert select_entries(text, (), reach_git) == (
        f"git.example.org {KEY}\n[git.example.org]:2222 {KEY}\n"
    )


def test_a_hashed_entry_is_shown_by_the_name_that_a_rule_writes_out():
    salt = b"0123456789abcdefghij"

    def hashed(name: str) -> str:
        digest = hmac.digest(salt, name.encode(), "sha1")
        return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"

    text = f"{hashed('git.example.org')} {KEY}\n{hashed('other.example.org')} {KEY}\n|1|x {KEY}\n"
    names = ("git.example.org", "other.example.org")

    assert select_entries(text, names, reach_git) == f"git.example.org {KEY}\n"


def test_patterns_marks_and_broken_lines_are_left_out():
    text = f"*.example.org {KEY}\n@cert-authority git.example.org {KEY}\n# git\ngit.example.org\n"

    assert select_entries(text, ("git.example.org",), reach_git) == ""


def test_a_user_without_known_hosts_has_none(tmp_path):
    (tmp_path / ".ssh").mkdir()
    assert KEY not in read_known_hosts(tmp_path)

    (tmp_path / ".ssh/known_hosts").write_text(f"git.example.org {KEY}\n")
    assert f"git.example.org {KEY}\n" in read_known_hosts(tmp_path)
