"""The walks on the page of the architecture are those that real work goes."""

import importlib.util

from tests.support.repository import ROOT

MODULES_MAX = 12
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def _walks():
    spec = importlib.util.spec_from_file_location("trace_walks", ROOT / "scripts/trace_walks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.walks()


def test_a_call_an_event_and_an_installation_pass_few_modules_of_their_folder_as_the_page_says():
    walked = {walk.title: walk for walk in _walks()}

    assert list(walked) == [
        "One `view`",
        "One `create_file`",
        "One event of the hook",
        "One `package install`",
    ]
    for title, walk in walked.items():
        own = walk.own_modules
        assert 0 < len(own) <= MODULES_MAX
        assert f"**{title}** passes {len(own)} modules of `{walk.own}/`" in PAGE
