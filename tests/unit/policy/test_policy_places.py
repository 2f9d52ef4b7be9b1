"""TOML and JSON texts as values, with the line of each key."""

import pytest

from paddock.errors import ConfigError
from paddock.limits import policy_bytes_max
from paddock.policy.positions import parse_document

TOML = b"""a.b = 1
[paths]
protected = [".git/",
   # a comment
   "x", { y = 1 }]
"q k" = 'lit'
[profiles.standard]
otherwise = { "tool:shell:*" = "ask", x.y = 2 }
[[profiles.standard.rules]]
action = '''
multi'''
[[profiles.standard.rules]]
action = "second"
[agents."Explore x"]
profile = 'l'
"""


def test_every_key_and_element_of_a_toml_text_has_its_line() -> None:
    document = parse_document("paddock.toml", TOML)
    assert document.values["profiles"]["standard"]["rules"][1] == {"action": "second"}
    assert {key: line for key, line in document.lines.items() if key} == {
        ("a",): 1,
        ("a", "b"): 1,
        ("paths",): 2,
        ("paths", "protected"): 3,
        ("paths", "protected", 0): 3,
        ("paths", "protected", 1): 5,
        ("paths", "protected", 2): 5,
        ("paths", "protected", 2, "y"): 5,
        ("paths", "q k"): 6,
        ("profiles", "standard"): 7,
        ("profiles", "standard", "otherwise"): 8,
        ("profiles", "standard", "otherwise", "tool:shell:*"): 8,
        ("profiles", "standard", "otherwise", "x"): 8,
        ("profiles", "standard", "otherwise", "x", "y"): 8,
        ("profiles", "standard", "rules"): 12,
        ("profiles", "standard", "rules", 0): 9,
        ("profiles", "standard", "rules", 0, "action"): 10,
        ("profiles", "standard", "rules", 1): 12,
        ("profiles", "standard", "rules", 1, "action"): 13,
        ("agents", "Explore x"): 14,
        ("agents", "Explore x", "profile"): 15,
    }
    assert document.line(("paths", "protected", 7)) == 3
    assert document.line(("nothing",)) == 1


def test_what_is_refused_in_toml_is_refused_in_a_file_of_comments_alone() -> None:
    empty = parse_document("paddock.toml", b"")
    assert empty.values == empty.lines == {}
    for text in (b"# a\r\n\t # b\tc\n", "# \u00e4\u2028x = 1\n".encode(), b"\n\n# x = 1"):
        said = parse_document("paddock.toml", text)
        assert said.values == said.lines == {}
    for text in (
        b"# a\rb\n",
        b"# \x00",
        b"#\x7f\n",
        b"\x0c# a",
        b"# a\n\x0b",
        b"# a\r",
        b"\xc2\xa0# a",
    ):
        with pytest.raises(ConfigError, match=r"not TOML: "):
            parse_document("paddock.toml", text)


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("p.toml", b"a = 1\nb = = 2\n", "p.toml:2"),
        ("p.toml", b"a = 1\na = 2\n", "p.toml:2"),
        ("p.toml", b"a = 1\nb = [1,\n", "p.toml:3"),
        ("p.toml", b"a = 1\n\xff = 2\n", "p.toml:2"),
        ("p.toml", b"a = " + b"[" * 20_000, "p.toml:1"),
        ("p.toml", b"a = " + b"9" * 5_000, "p.toml:1"),
        ("p.toml", b"a = 2026-13-99\n", "p.toml:1"),
        ("p.toml", b"\xef\xbb\xbf\xef\xbb\xbfa = 1\n", "p.toml:1"),
        ("p.json", b'{\n "a": 1,\n "b" 2}', "p.json:3"),
        ("p.json", b'{\n "a": 1,\n "a": 2}', "p.json"),
        ("p.json", b'{"a": NaN}', "p.json"),
        ("p.json", b'{"a": -Infinity}', "p.json"),
        ("p.json", b'{"a": "\\ud800"}', "p.json"),
        ("p.json", b"[]", "p.json"),
        ("p.json", b"", "p.json:1"),
        ("p.json", b'{"a": ' + b"[" * 20_000, "p.json"),
        ("p.json", b'{"a": ' + b"9" * 5_000 + b"}", "p.json"),
        ("p.toml", b"#" * (policy_bytes_max + 1), "p.toml"),
    ],
)
def test_what_is_no_document_is_a_config_error_with_its_line(
    name: str, text: bytes, where: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_document(name, text)
    assert caught.value.where == where
    assert caught.value.hint
