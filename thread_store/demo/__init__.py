"""`rollout demo`: an agent that is killed and comes back."""

from __future__ import annotations

__all__ = []
