"""What a command ends with, whether an error was raised or a call was refused with its code."""

import pytest

from paddock.apps.console import exit_of_call, exit_of_error
from paddock.errors import (
    TOOL_ERRORS,
    ConfigError,
    HostError,
    IntegrityError,
    InternalError,
    LedgerDamagedError,
    ModelFailedError,
    UsageError,
)
from paddock.values.calls import Refusal

HOST = {"ledger.busy", "ledger.full", "ledger.unknown", "sandbox.unavailable", "storage.full"}


@pytest.mark.parametrize("code", TOOL_ERRORS)
def test_a_refused_call_ends_as_if_its_error_had_been_raised(code):
    wanted = 5 if code in HOST else 1

    assert exit_of_call(Refusal(code, "it failed")) == wanted
    assert exit_of_error(TOOL_ERRORS[code]) == wanted


def test_a_call_that_is_done_ends_with_nothing_and_one_refused_by_no_code_of_ours_with_no():
    assert exit_of_call(None) == 0
    assert exit_of_call(Refusal("tool.of_a_package", "it failed")) == 1


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (UsageError, 2),
        (ConfigError, 3),
        (IntegrityError, 4),
        (LedgerDamagedError, 4),
        (HostError, 5),
        (ModelFailedError, 5),
        (InternalError, 70),
    ],
)
def test_what_no_call_is_refused_with_has_its_own_status(kind, status):
    assert exit_of_error(kind) == status
