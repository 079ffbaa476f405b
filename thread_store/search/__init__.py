"""Search: what was said and done in the threads of a home, found in the bytes of their files."""

from __future__ import annotations

__all__ = []
