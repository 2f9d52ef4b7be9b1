import pytest

from paddock.plane.clients import CLAUDE, CODEX


@pytest.mark.parametrize(
    ("client", "variable", "folder"),
    [(CLAUDE, "CLAUDE_CONFIG_DIR", ".claude"), (CODEX, "CODEX_HOME", ".codex")],
)
def test_a_clients_own_folder_is_in_the_home_unless_its_variable_names_another(
    client, variable, folder
):
    assert client.of_user("/home/a", {}) == f"/home/a/{folder}"
    assert client.of_user("/", {variable: ""}) == f"/{folder}"
    assert client.of_user("/home/a", {variable: "/else/where"}) == "/else/where"
