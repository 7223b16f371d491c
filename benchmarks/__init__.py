"""Rushlight against torch, both eager: `python -m benchmarks --help`."""
