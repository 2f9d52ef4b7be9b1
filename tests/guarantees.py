"""What docs/threat-model.md promises, and what proves each promise.

A guarantee is proved by tests that see it hold, and by a mutant: an edit that
breaks it, which those tests must notice (`make mutants`). tests/docs checks
that this table and the document agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class Guarantee:
    """Tests as pytest node ids or files; mutants as file names in tests/mutants/."""

    tests: tuple[str, ...]
    mutants: tuple[str, ...]


GUARANTEES: Final[Mapping[str, Guarantee]] = MappingProxyType(
    {
        "G13": Guarantee(
            tests=("tests/property/test_text_edits.py", "tests/unit/text/test_splice.py"),
            mutants=("edit-counts-shown-bytes.toml",),
        ),
        "G16": Guarantee(
            tests=("tests/unit/text/test_show.py", "tests/property/test_shown_text.py"),
            mutants=("direction-overrides-are-shown.toml",),
        ),
    }
)
