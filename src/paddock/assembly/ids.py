"""Ids for what a door opens and calls."""

import os


def new_session_id() -> str:
    return f"SES-{os.urandom(8).hex()}"


def new_call_id() -> str:
    return f"CALL-{os.urandom(8).hex()}"
