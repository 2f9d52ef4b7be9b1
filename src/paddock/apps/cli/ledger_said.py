"""What more than one question of `paddock ledger` says."""


def unfinished(size_bytes: int) -> str:
    """What to say of an append that is on its way, or torn."""
    return f"{size_bytes} bytes follow the last whole line"
