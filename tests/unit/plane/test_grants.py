from pathlib import Path

import pytest

from paddock.errors import ConfigError
from paddock.plane.grants import list_grants, summarise
from paddock.plane.policy_files import PolicyFile
from paddock.plane.template import POLICY_TEMPLATE


def policy(text: str) -> PolicyFile:
    return PolicyFile(Path("/w/paddock.toml"), text.encode(), trusted=False, reason="never")


def grants(text: str) -> list[str]:
    return [str(grant) for grant in list_grants(policy(text))]


@pytest.mark.parametrize(
    "text",
    [
        "",
        POLICY_TEMPLATE.decode(),
        '[paths]\nprotected = [".git/", ".env*", "*.key", "*.pem", "*.lock"]',
        '[paths]\nsafe = ["/docs/**"]',
        '[shell]\nnetwork = "none"\ngit = "read-only"\nread = ["/usr"]',
        "[shell]\nlimits = { processes = 8 }",
        "[limits]\napproval_timeout_s = 1",
        '[profiles.mine]\ndeny = ["tool:file:*"]',
        '[agents."Explore"]\nprofile = "locked"',
    ],
)
def test_what_only_tightens_or_repeats_grants_nothing(text):
    assert grants(text) == []
    assert summarise(policy(text)) == "/w/paddock.toml allows nothing beyond the defaults"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[paths]\nprotected = [".git/", "!my.pem", "*.key", "*.pem"]',
            [
                "[paths] .env* is no longer protected",
                "[paths] !my.pem is taken out of protected (line 2)",
            ],
        ),
        (
            '[paths]\nsecret = []\nsafe = ["/src/**"]',
            [
                "[paths] .env* is no longer secret",
                "[paths] *.key is no longer secret",
                "[paths] /src/** is safe: no warning (line 3)",
            ],
        ),
        (
            """[profiles.mine]
allow = ["tool:file:view"]
ask = ["tool:mcp:call"]
otherwise = { "tool:search:*" = "allow", "tool:client:*" = "deny" }
""",
            [
                "profile mine allows tool:file:view (line 2)",
                "profile mine asks about tool:mcp:call (line 3)",
                "profile mine otherwise allows tool:search:* (line 4)",
            ],
        ),
        (
            '[profiles.locked]\nallow = ["tool:file:view", "tool:file:create"]',
            [
                (
                    "profile locked replaces the built-in one whole: "
                    "what it does not name is denied (line 1)"
                ),
                "profile locked allows tool:file:create (line 2)",
            ],
        ),
        (
            """[shell]
network = "host"
git = "none"
read = ["/usr", "/srv"]
write = ["/var"]
enforcement = "best-effort"
approve = "diff"
limits = { processes = 999 }
""",
            [
                "[shell] network is 'host'",
                "[shell] git is 'none'",
                "[shell] commands may read /srv",
                "[shell] commands may write /var",
                "[shell] enforcement is 'best-effort'",
                "[shell] approve is 'diff'",
                "[shell] limit processes is 999",
            ],
        ),
        (
            '[profiles.mine.shell]\nnetwork = "host"',
            ["profile mine, shell network is 'host'"],
        ),
        (
            """[hook]
on_allow = "approve"
warnings = "off"
also_write = ["~/notes/**"]
[agents."Explore"]
profile = "open"
[history]
bytes_max = 1
[mcp]
calls_max = 64
[ledger]
keep_model_contents = true
""",
            [
                "[hook] an allow skips the client's own question",
                "[hook] warnings are off",
                "[hook] the client may also write ~/notes/**",
                "[agents] Explore has the profile open",
                "[history] only 1 bytes are kept for undo",
                "[mcp] 64 calls run at once",
                "[ledger] what models say and hear is kept",
            ],
        ),
    ],
)
def test_everything_that_loosens_is_named(text, expected):
    assert grants(text) == expected
    assert summarise(policy(text)).splitlines() == [
        "/w/paddock.toml allows, beyond the defaults:",
        *(f"  - {line}" for line in expected),
    ]


def test_a_rule_that_gives_a_command_the_network_says_so():
    rule = (
        '[[profiles.mine.rules]]\naction = "tool:shell:run npm install *"\n'
        'outcome = "ask"\nnetwork = "host"'
    )
    assert grants(rule) == [
        "profile mine asks about tool:shell:run npm install * (line 2)",
        "profile mine gives tool:shell:run npm install * the network 'host' (line 2)",
    ]


def test_a_text_that_would_rewrite_the_screen_is_escaped():
    text = '[profiles."a\\u001b[2K\\u202e"]\nallow = ["tool:file:view"]'
    assert grants(text) == ["profile a\\x1b[2K\\u202e allows tool:file:view (line 2)"]


def test_a_file_that_does_not_load_has_no_summary():
    with pytest.raises(ConfigError):
        list_grants(policy("[pahts]"))
