"""The blobs of a home, as readers see them: put back into records, and found when nothing names them."""

from __future__ import annotations

__all__ = []
