"""What people call threads and what they typed: names, prompt history, labels. None of it stands in a rollout."""

from __future__ import annotations

__all__ = []
