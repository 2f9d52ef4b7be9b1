"""`paddock demo --web`: a stranger sees an agent at work, and answers it."""

import pytest

from tests.support.consoles import serving_demo
from tests.support.mcp_servers import McpPlace

pytestmark = pytest.mark.loopback


def test_an_agent_works_and_asks_and_goes_on_when_it_was_answered(place: McpPlace):
    with serving_demo(place) as server, server.stream() as stream:
        stream.until("entry", ledger="ho1m", tool="create_file", state="done")
        (asked,) = stream.until("inbox")["waiting"]
        request = server.get("inbox").value["requests"][0]
        assert (request["id"], request["state"]) == (asked, "waiting")
        answered = server.post("inbox/grant", id=asked, digest=request["digest"], resume=True)
        assert answered.value["result"]["status"] == "ok"
        refused = stream.until("entry", ledger="ho1m", target=".git/hooks/pre-commit")
        assert refused["state"] == "refused"
