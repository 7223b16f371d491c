"""Toolchains, the artifact cache, and what compiled graphs are made of."""
