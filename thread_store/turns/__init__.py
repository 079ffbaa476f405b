"""What an agent records with: turns, tool calls, approvals, checks, compactions."""

from __future__ import annotations

__all__ = []
