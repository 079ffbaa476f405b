"""Threads that other programs recorded, as rollouts of ours.

Invariant: an import is a function of its source: the same source gives the same lines, so that importing
again adds only what the source has more. The source is only read; what has no counterpart is kept as it was
(`x_source`), and counted.
"""

from __future__ import annotations

__all__ = []
