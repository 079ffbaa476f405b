"""The store that keeps its threads in memory, for tests and for agents that leave nothing behind."""

from __future__ import annotations

__all__ = []
