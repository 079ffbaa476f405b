"""Lists of threads: pages in an order that stays, with what a person knows a thread by."""

from __future__ import annotations

__all__ = []
