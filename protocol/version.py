"""The version of the library; the same as in pyproject.toml (a test holds them together)."""

__all__ = ["ORIGINATOR", "VERSION"]

ORIGINATOR = "rollout-recorder"
VERSION = "0.1.0"
