"""What people call threads and what they typed: names, prompts, labels. None of it stands in a rollout."""

from __future__ import annotations

__all__ = []
