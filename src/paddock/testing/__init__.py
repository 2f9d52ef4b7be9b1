"""Shipped fakes: they keep the ports of the real things and pass the same suites."""
