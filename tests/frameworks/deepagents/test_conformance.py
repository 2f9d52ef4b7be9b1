"""The suite that LangChain has for sandboxes, unchanged, where every command is confined."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from paddock.integrations.deepagents import PaddockBackend
from tests.support.shells import Yard

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

CONFINED = """
[profiles.standard]
allow = ["tool:file:*", "tool:search:*"]
otherwise = { "tool:shell:*" = "confine" }
"""


class TestPaddock(SandboxIntegrationTests):
    root: Path

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def sandbox(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockBackend]:
        # The suite's commands call `python`, which a distribution may not have.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        yard = Yard(tmp_path_factory.mktemp("deepagents"), CONFINED, {"PATH": path}).make()
        cls.root = yard.root
        with yard.opened() as terminal, PaddockBackend(terminal.runtime) as backend:
            yield backend

    @property
    def sandbox_root_dir(self) -> str:
        return str(self.root / "sandbox_ops")
