"""Servers moved behind the gateway and back: every byte as it was, and none lost in between."""

import json
import tomllib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.places import Place, new_place, run_command

names = st.sampled_from(["issues", "My Server", "a_b", "Grüße", "x" * 30, "github"])
words = st.sampled_from(["npx", "-y", "a b", 'say "x"', "ä", "./run.sh", "--flag=1", "${HOME}", ""])
entries = st.one_of(
    st.fixed_dictionaries(
        {"command": words, "args": st.lists(words, max_size=3)},
        optional={
            "env": st.dictionaries(st.sampled_from(["TOKEN", "A_B", "a-b"]), words, max_size=2),
            "type": st.sampled_from(["stdio", "sse"]),
            "headers": st.just({"A": "b"}),
        },
    ),
    st.fixed_dictionaries({"url": st.sampled_from(["https://a.example/mcp", "ftp://x"])}),
    st.sampled_from([{}, "no server", None]),
)
servers = st.dictionaries(names, entries, max_size=4)
policies = st.sampled_from(
    [
        *(None, b"", b"# mine", b'[paths]\nsafe = ["/x/**"]\n'),
        b'[mcp.servers.issues]\r\ncommand = ["own"]\r\n',
    ]
)


@st.composite
def json_files(draw) -> bytes:
    """A client's file, indented as somebody likes."""
    whole = {"other": [1.50, {"é": None}], "mcpServers": draw(servers), "z": {}}
    if draw(st.booleans()):
        whole["mcpServers"]["paddock"] = {"command": "paddock", "args": ["mcp"]}
    indent = draw(st.sampled_from([None, 1, 4, "\t"]))
    text = json.dumps(whole, indent=indent, ensure_ascii=draw(st.booleans()))
    end = draw(st.sampled_from(["", "\n", "\n\n"]))
    return (text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))) + end).encode()


@st.composite
def toml_files(draw) -> bytes:
    parts = ['# mine\nmodel = "x"  # y\n']
    for name, entry in draw(servers).items():
        if not isinstance(entry, dict):
            continue
        key = f"mcp_servers.{json.dumps(name, ensure_ascii=False)}" if " " in name else None
        key = key or (f"mcp_servers.{name}" if name.isascii() else f'mcp_servers."{name}"')
        rows = {each: value for each, value in entry.items() if each not in ("env", "headers")}
        text = "".join(f"{each} = {json.dumps(value)}\n" for each, value in rows.items())
        part = f"[{key}]\n{text}"
        if "env" in entry:
            variables = "".join(f"{k} = {json.dumps(v)}\n" for k, v in entry["env"].items())
            part += f"\n[{key}.env]\n{variables}"
        parts.append(part)
    parts.append("[tui]\ntheme = 1\n")
    order = draw(st.permutations(parts[1:]))
    return draw(st.sampled_from(["\n", "\n# between\n\n"])).join([parts[0], *order]).encode()


def run(place: Place, *arguments: str):
    environment = {"HOME": str(place.home)}
    ran = run_command("mcp", *arguments, variables=environment, here=place.project)
    assert ran.status == 0, ran.err
    return ran


def files(place: Place, client: str) -> tuple[Path, Path]:
    name = ".mcp.json" if client == "claude" else ".codex/config.toml"
    return place.project / name, place.project / "paddock.toml"


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def put(path: Path, text: bytes | None) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_bytes(text)


def configured(path: Path) -> dict:
    if path.suffix == ".json":
        return json.loads(path.read_bytes())["mcpServers"]
    return tomllib.loads(path.read_text()).get("mcp_servers", {})


def in_policy(path: Path) -> dict:
    return tomllib.loads((content(path) or b"").decode()).get("mcp", {}).get("servers", {})


def moves(place: Place, client: str, before: bytes, policy: bytes | None) -> None:
    file, own = files(place, client)
    put(file, before)
    put(own, policy)
    scope = ("--client", client, "--scope", "project")
    was = configured(file)

    moved = run(place, "import", *scope, "--json").json
    after, table = content(file), content(own)
    left = configured(file).keys() - {"paddock"}
    assert left == moved["left"].keys()
    assert left | moved["moved"].keys() == was.keys() - {"paddock"}
    assert in_policy(own).keys() >= set(moved["moved"].values())
    assert run(place, "import", *scope, "--json").json["moved"] == {}
    assert (content(file), content(own)) == (after, table)

    run(place, "export", *scope)
    assert (content(file), content(own)) == (before, policy)
    assert run(place, "export", *scope, "--json").json["moved"] == []
    if not moved["moved"]:
        return

    # Stopped: on record alone; in the policy, and not yet out of the client's file.
    for stopped in (policy, table):
        run(place, "import", *scope)
        put(file, before)
        put(own, stopped)
        again = run(place, "import", *scope, "--json").json
        assert (again["moved"], content(file), content(own)) == (moved["moved"], after, table)
        put(file, before)
        put(own, stopped)
        run(place, "export", *scope)
        assert (content(file), content(own)) == (before, policy)


@settings(max_examples=25)
@given(json_files(), policies)
def test_of_claude_every_byte_comes_back_and_no_server_is_lost(before, policy):
    with new_place() as place:
        moves(place, "claude", before, policy)


@settings(max_examples=25)
@given(toml_files(), policies)
def test_of_codex_every_byte_comes_back_and_no_server_is_lost(before, policy):
    with new_place() as place:
        moves(place, "codex", before, policy)
