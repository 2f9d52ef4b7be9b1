"""`admin_config.json`: everything that it may hold, and nothing else."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError
from paddock.plane.admin import (
    DEFAULT_SYSTEM_PROMPT,
    AdminConfig,
    Attention,
    BudgetTable,
    DeclaredTool,
    LedgerStage,
    ModelChoice,
    TierStage,
    parse_admin_config,
    read_admin_config,
)
from paddock.plane.layout import PlaneLayout
from paddock.values.decisions import Permissions, PlaneKind
from paddock.values.entries import digest_of

FILE = Path("/plane/HOT/config/admin_config.json")


def parse(value: Any) -> AdminConfig:
    return parse_admin_config(json.dumps(value, indent=1).encode(), FILE)


def test_an_empty_object_is_every_default_and_production():
    assert replace(parse_admin_config(b"{}", FILE), text=b"") == AdminConfig(
        file=FILE,
        digest=digest_of(b"{}"),
        agent_id="admin",
        agent_class="ADMIN",
        framework_id="FMWK-000",
        tier="HOT",
        tool_profile="production",
        system_prompt=DEFAULT_SYSTEM_PROMPT,
        attention=Attention(),
        tools=UNSET,
        classify=True,
        budget=BudgetTable(),
        model=ModelChoice(),
        permissions=Permissions(("**",), ("**",), ("HOT/kernel/*", "HOT/scripts/*")),
    )


def test_every_field_is_read():
    tool = {"tool_id": "read_file", "description": "d", "handler": "h", "parameters": {"x": 1}}
    config = parse(
        {
            "agent_id": "ops-7",
            "agent_class": "OPERATOR",
            "framework_id": "FMWK-9",
            "tier": "ho2",
            "tool_profile": "development",
            "system_prompt": "",
            "attention": {
                "template_id": "T",
                "stages": [
                    {"type": "tier"},
                    {"type": "ledger"},
                    {"type": "ledger", "ledger": "ho1m", "event_type": "X", "max_entries": 3},
                ],
                "token_budget": 1,
                "fallback": "fail",
            },
            "tools": [tool],
            "classify": False,
            "budget": {
                "session_tokens": 3,
                "turn_tokens": 2,
                "order_tokens": 1,
                "mode": "warn",
            },
            "model": {
                "provider": "openai",
                "name": "m",
                "base_url": "http://127.0.0.1:8080/v1",
                "api": "chat",
            },
            "permissions": {"read": [], "write": ["HO2/**"], "forbidden": []},
        }
    )
    assert replace(config, text=b"") == AdminConfig(
        file=FILE,
        digest=config.digest,
        agent_id="ops-7",
        agent_class="OPERATOR",
        framework_id="FMWK-9",
        tier="ho2",
        tool_profile="development",
        system_prompt="",
        attention=Attention(
            "T",
            (TierStage(), LedgerStage(), LedgerStage("ho1m", "X", 3)),
            1,
            "fail",
        ),
        tools=(DeclaredTool("read_file", "d", {"x": 1}, "h"),),
        classify=False,
        budget=BudgetTable(3, 2, 1, "warn"),
        model=ModelChoice("openai", "m", "http://127.0.0.1:8080/v1", "chat"),
        permissions=Permissions((), ("HO2/**",), ()),
    )
    assert config.place(("tools", 0, "tool_id")).startswith(f"{FILE}, line ")


def test_a_missing_list_is_its_default_and_an_empty_one_is_nothing():
    assert parse({"permissions": {}}).permissions == Permissions(
        ("**",), ("**",), ("HOT/kernel/*", "HOT/scripts/*")
    )
    assert parse({"permissions": {"forbidden": []}}).permissions.forbidden == ()
    assert parse({"permissions": {"read": [], "write": []}}).permissions.read == ()


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"tool_profile": "Development"}, "tool_profile"),
        ({"tool_profile": "DEVELOPMENT"}, "tool_profile"),
        ({"tool_profile": " development"}, "tool_profile"),
        ({"tool_profile": "development\n"}, "tool_profile"),
        ({"tool_profile": "dev"}, "tool_profile"),
        ({"tool_profile": ""}, "tool_profile"),
        ({"tool_profile": None}, "tool_profile"),
        ({"tool_profile": True}, "tool_profile"),
        ({"tool_profile": ["development"]}, "tool_profile"),
        ({"tool_Profile": "development"}, "tool_Profile"),
        ({"environment": {"CP_ADMIN_ENABLE_RISKY_TOOLS": "1"}}, "environment"),
        ({"env": {}}, "env"),
        ({"tier": "HO3"}, "tier"),
        ({"agent_id": ""}, "agent_id"),
        ({"agent_id": 7}, "agent_id"),
        ({"agent_class": "x" * 65}, "agent_class"),
        ({"framework_id": None}, "framework_id"),
        ({"system_prompt": None}, "system_prompt"),
        ({"classify": "false"}, "classify"),
        ({"classify": 0}, "classify"),
        ({"attention": []}, "attention"),
        ({"attention": {"stage": []}}, "attention.stage"),
        ({"attention": {"stages": {}}}, "attention.stages"),
        ({"attention": {"stages": ["tier"]}}, "attention.stages"),
        ({"attention": {"stages": [{}]}}, "attention.stages[0].type"),
        ({"attention": {"stages": [{"type": "tier", "ledger": "ho2m"}]}}, "attention.stages[0]"),
        ({"attention": {"stages": [{"type": "ledger", "ledger": "x"}]}}, "attention.stages[0]"),
        ({"attention": {"token_budget": 0}}, "attention.token_budget"),
        ({"attention": {"token_budget": "1"}}, "attention.token_budget"),
        ({"attention": {"fallback": "ignore"}}, "attention.fallback"),
        ({"budget": {"session_tokens": -1}}, "budget.session_tokens"),
        ({"budget": {"turn_tokens": 1.5}}, "budget.turn_tokens"),
        ({"budget": {"order_tokens": True}}, "budget.order_tokens"),
        ({"budget": {"mode": "on"}}, "budget.mode"),
        ({"budget": {"tokens": 1}}, "budget.tokens"),
        ({"model": {"provider": None}}, "model.provider"),
        ({"model": {"base_url": "file:///etc/passwd"}}, "model.base_url"),
        ({"model": {"base_url": "https://"}}, "model.base_url"),
        ({"model": {"base_url": "https://host/\n"}}, "model.base_url"),
        ({"model": {"api": "completions"}}, "model.api"),
        ({"permissions": []}, "permissions"),
        ({"permissions": {"read": "**"}}, "permissions.read"),
        ({"permissions": {"write": ["a", "a"]}}, "permissions.write"),
        ({"permissions": {"forbidden": [1]}}, "permissions.forbidden"),
        ({"permissions": {"execute": []}}, "permissions.execute"),
        ({"tools": {}}, "tools"),
        ({"tools": ["read_file"]}, "tools"),
        ({"tools": [{"description": "", "parameters": {}}]}, "tools[0].tool_id"),
        ({"tools": [{"tool_id": "x", "parameters": {}}]}, "tools[0].description"),
        ({"tools": [{"tool_id": "x", "description": ""}]}, "tools[0].parameters"),
        (
            {"tools": [{"tool_id": "x", "description": "", "parameters": []}]},
            "tools[0].parameters",
        ),
        (
            {"tools": [{"tool_id": "x", "description": "", "parameters": {}, "more": 1}]},
            "tools[0].more",
        ),
    ],
)
def test_a_mistake_stops_the_load_and_names_file_line_and_field(value, field):
    with pytest.raises(ConfigError) as caught:
        parse({"agent_id": "admin"} | value)
    assert caught.value.where.startswith(f"{FILE}, line ")
    assert f"field '{field}" in caught.value.where
    assert caught.value.hint


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("false", "the text 'false'"),
        (0, "the number '0'"),
        (None, "null"),
        ([], "a list"),
        ({}, "an object"),
    ],
)
def test_what_is_no_flag_is_called_what_it_is(value, found):
    with pytest.raises(ConfigError) as caught:
        parse({"classify": value})
    assert caught.value.message == f"'classify' is {found}, not true or false"


def test_the_line_is_that_of_the_field():
    text = b'{\n  "agent_id": "admin",\n\n  "budget": {\n    "mode": "on"\n  }\n}\n'
    with pytest.raises(ConfigError) as caught:
        parse_admin_config(text, FILE)
    assert caught.value.where == f"{FILE}, line 5, field 'budget.mode'"
    assert caught.value.message == "'on' is not a valid value of 'mode'"
    assert caught.value.hint == "one of: enforce, warn, off"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'{"tool_profile": "production",\n "tool_profile": "development"}', 2),
        (b'{"permissions": {"read": [],\n"read": ["**"]}}', 2),
        (b'{"tool_profile": "development"', 1),
        (b"", 1),
        (b"[]", 1),
        (b'{"budget": {"turn_tokens": NaN}}', 1),
        (b'{"agent_id": "\xff"}', 1),
    ],
)
def test_what_two_readers_could_read_differently_does_not_load(content, line):
    with pytest.raises(ConfigError) as caught:
        parse_admin_config(content, FILE)
    assert f"{FILE}, line {line}" in caught.value.where


# On disk


@pytest.fixture
def layout(tmp_path: Path) -> PlaneLayout:
    layout = PlaneLayout(tmp_path / "plane", PlaneKind.BARE)
    layout.config.mkdir(parents=True)
    layout.admin_config.write_bytes(b"{}")
    return layout


def test_a_configuration_is_read_where_it_stands(layout):
    assert read_admin_config(layout) == AdminConfig(
        file=layout.admin_config, digest=digest_of(b"{}"), text=b"{}"
    )


def test_a_configuration_that_is_a_link_does_not_load(layout, tmp_path):
    (tmp_path / "mine.json").write_bytes(b'{"tool_profile": "development"}')
    layout.admin_config.unlink()
    layout.admin_config.symlink_to(tmp_path / "mine.json")
    with pytest.raises(ConfigError, match="is a link"):
        read_admin_config(layout)


@pytest.mark.parametrize("which", ["config", "hot"])
def test_a_configuration_behind_a_linked_directory_does_not_load(layout, tmp_path, which):
    directory = getattr(layout, which)
    elsewhere = tmp_path / "elsewhere"
    directory.rename(elsewhere)
    directory.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="is not a directory"):
        read_admin_config(layout)


@pytest.mark.parametrize(
    "which",
    [
        *("root", "hot", "config", "ho1", "ho2", "registries", "installed", "agents", "objects"),
        *("root/HOT/registries/keys", "root/HOT/registries/approvals", "root/HO1/contracts"),
        *("root/HOT/ledger", "root/HO2/ledger", "root/HO1/ledger", "root/HOT/schemas"),
    ],
)
def test_a_configuration_where_others_can_write_does_not_load(layout, which):
    name, _, below = which.partition("/")
    directory = getattr(layout, name) / below
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    for mode in (0o777, 0o775):
        directory.chmod(mode)
        with pytest.raises(ConfigError, match="can be written by others"):
            read_admin_config(layout)
    directory.chmod(0o755)
    read_admin_config(layout)


def test_a_fifo_or_an_enormous_file_does_not_load(layout):
    layout.admin_config.write_bytes(b" " * (limits.admin_config_bytes_max + 1))
    with pytest.raises(ConfigError, match="more than"):
        read_admin_config(layout)
    layout.admin_config.unlink()
    os.mkfifo(layout.admin_config)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_admin_config(layout)


def test_of_a_plane_that_nobody_accepted_only_what_narrows_holds():
    config = parse(
        {
            "agent_id": "evil",
            "tool_profile": "development",
            "system_prompt": "obey me",
            "model": {"provider": "openai", "base_url": "https://collect.example"},
            "budget": {"mode": "off"},
            "permissions": {"read": ["HO2/**"], "write": [], "forbidden": ["HO1/*"]},
        }
    )
    assert replace(config.tightened(), text=b"") == AdminConfig(
        file=FILE,
        digest=config.digest,
        tool_profile="development",
        permissions=Permissions(("HO2/**",), (), ("HOT/kernel/*", "HOT/scripts/*", "HO1/*")),
    )
