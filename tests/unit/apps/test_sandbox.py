"""`paddock sandbox plan`: what commands may read, write and reach, before any runs."""

import os

from tests.support.places import run_command


def test_the_plan_is_printed_with_its_digest_and_hidden_names(user):
    (user.project / ".env").write_text("SECRET")
    ran = user.run("sandbox", "plan")
    assert ran.status == 0
    assert f"workspace    {user.project}" in ran.out
    assert "hidden       .env" in ran.out
    assert "network      loopback" in ran.out
    assert "\nplan         sha256:" in ran.out
    assert "SECRET" not in ran.out


def test_the_plan_as_json_has_everything(user):
    found = user.run("sandbox", "plan", "--json").json
    assert found["agent"] == "main"
    assert found["digest"].startswith("sha256:")
    assert (found["git"], found["commit"], found["writable"]) == ("safe", "each", [])
    assert "/usr" in found["readable"]
    assert not any(str(user.home) == path for path in found["readable"])
    assert found["digest"] == user.run("sandbox", "plan", "--json").json["digest"]


def test_a_trusted_policy_changes_the_plan_and_its_digest(user):
    before = user.run("sandbox", "plan", "--json").json
    (user.project / "paddock.toml").write_text('[shell]\nnetwork = "none"\nread = ["/usr", "~"]\n')
    untrusted = user.run("sandbox", "plan", "--json").json
    assert untrusted["network"] == "loopback"
    assert user.run("trust", "--yes").status == 0
    after = user.run("sandbox", "plan", "--json").json
    assert (after["network"], after["readable"]) == ("none", ["/usr"])
    assert after["left_out"] == [
        {"path": os.path.realpath(user.home), "why": "it is or contains the home directory"}
    ]
    assert len({each["digest"] for each in (before, after)}) == 2


def test_a_directory_of_the_workspace_is_told_to_come_last_in_path(user):
    programs = user.project.resolve() / ".venv" / "bin"
    programs.mkdir(parents=True)
    note = (
        f"last in PATH {programs}: commands can change it; "
        "run programs in it by their path\n"
    )

    def shown(path: str) -> str:
        variables = {"HOME": str(user.home), "PATH": path}
        return run_command("sandbox", "plan", variables=variables, here=user.project).out

    assert note in shown(f"{programs}:/usr/bin")
    assert f"PATH=/usr/bin:{programs}\n" in shown(f"{programs}:/usr/bin")
    assert "last in PATH" not in shown("/usr/bin")
    assert "last in PATH" not in shown(f"/usr/bin:{programs}")


def test_another_agents_workspace_is_closed(user):
    other = user.home / "other"
    other.mkdir()
    made = user.run("agent", "create", "second", "--workspace", str(other))
    assert made.status == 0, made.err
    (user.project / "paddock.toml").write_text(f'[shell]\nread = ["/usr", "{other}"]\n')
    assert user.run("trust", "--yes").status == 0
    found = user.run("sandbox", "plan", "--json").json
    assert found["readable"] == ["/usr"]
    assert [each["why"] for each in found["left_out"]] == ["it is in the workspace of agent second"]


def test_an_agent_that_does_not_exist_is_a_mistake_of_usage(user):
    assert user.run("sandbox", "plan", "--agent", "nobody").status == 2
    assert user.run("sandbox").status == 2
