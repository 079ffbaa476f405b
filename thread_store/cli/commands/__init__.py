"""One module a command, each with its click command as `command`; loaded when it is called."""

from __future__ import annotations

__all__ = []
