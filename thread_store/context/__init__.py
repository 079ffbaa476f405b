"""What a model sees of a thread: from the newest checkpoint on, as it is and as it is sent."""

from __future__ import annotations

__all__ = []
