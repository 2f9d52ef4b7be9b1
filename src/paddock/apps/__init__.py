"""Interfaces. Each knows the runtime; none knows another. Only these print and exit."""
