"""No file here speaks of the machine or the place that it was written on."""

import re

import pytest

from tests.support.repository import ROOT, files

# Written with a class of one letter, so that this file does not hold what it forbids.
FORBIDDEN = {
    "a path of a machine": r"/w[o]rk/|/r[o]ot/|/h[o]me/[a-z]|/Us[e]rs/|/tmp/(b[a]sh|t[e]am|pr[o]be)|\.p[y]env/",
    "a registry's address": r"py[p]i\.org|pythonh[o]sted|npm[j]s\.|deb[i]an\.org",
    "an unfinished mark": r"\b(T[O]DO|F[I]XME|X[X]X)\b",
    "a neighbour of the repository": r"\.\./sh[a]red|sh[a]red/(contr[a]cts|f[a]cts)",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str):
    pattern = re.compile(FORBIDDEN[what])
    found = []
    for path in files():
        if path.is_relative_to(ROOT / "tests") and what == "a path of a machine":
            continue  # attacks name such paths
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {match[0]}"
            for number, line in enumerate(lines, start=1)
            if (match := pattern.search(line))
        ]

    assert found == []
