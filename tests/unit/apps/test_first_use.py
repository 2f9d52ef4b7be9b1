"""Several that use a project for the first time at one moment."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

from paddock.assembly.project_open import open_project
from paddock.plane.environment import read_environment


def test_what_is_new_stands_once_on_record(user):
    together = threading.Barrier(8)

    def open_it() -> None:
        together.wait()
        open_project(user.project, read_environment({"HOME": str(user.home)}))

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(open_it) for _ in range(8)]:
            each.result()

    rows = user.run("ledger", "query", "--last", "0", "--json").out.splitlines()
    told = [json.loads(row)["event_type"] for row in rows]
    assert told == ["GENESIS", "PLANE_CREATED", "AGENT_CREATED", "POLICY_LOADED"]
