"""A runtime killed while its commands commit; `kill_shell.py --rounds 100` does it by hand."""

import os

import pytest

from tests.support.programs import require_rounds

ROUNDS = os.environ.get("PADDOCK_KILL_SHELL_ROUNDS", "4")
pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash"), pytest.mark.needs("git")]


def test_after_a_kill_the_tree_is_the_old_or_the_new_as_a_whole():
    require_rounds(__file__, ROUNDS)
