"""The example of a tool of one's own runs offline, and says what it is shown to say."""

import os
import subprocess
import sys

from tests.support.places import new_place
from tests.support.repository import ROOT

SAID = """\
tools: view, grep, find, ls, weather
[stdout] asking for Oslo
{"city":"Oslo","days":["0 c: rain","1 c: rain"]}
error[args.invalid]: days: expected int <= 7
hint: give days as its schema says
error[policy.denied]: 'tool:file:create weather.md' is denied: no rule of the profile \
"forecaster" matches "tool:file:create weather.md", so it is denied; an operator can allow it \
in [profiles.forecaster]
hint: no rule allows it; choose another way, or ask a person to look: paddock policy explain \
call_3_1
It rains.
"""


def test_a_model_calls_a_function_of_the_program_and_nothing_that_its_policy_does_not_allow():
    with new_place() as place:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "own_tool.py"), str(place.project)],
            env={"HOME": str(place.home), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr, done.returncode) == (SAID, "", 0)
        assert not (place.project / "weather.md").exists()
