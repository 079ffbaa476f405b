"""What must be known of a thread beside its history, kept at hand: folds, `x_memory`, derived files."""

from __future__ import annotations

__all__ = []
