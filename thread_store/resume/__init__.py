"""Coming back to a thread: what it is, what stands against going on, and what is recorded then."""

from __future__ import annotations

__all__ = []
