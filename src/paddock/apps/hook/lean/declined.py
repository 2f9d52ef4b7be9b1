"""The signal by which the lean path leaves a call to the full one. Nothing was recorded yet."""


class DeclinedError(Exception):
    """The lean path does not decide this; the text says why, for tests and measurements."""
