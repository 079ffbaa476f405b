"""Erasing: a record is overwritten in its place, and everything that was made of it goes too."""

from __future__ import annotations

__all__ = []
