"""What becomes of threads that nobody writes: put into the archive, compressed, pruned, deleted.

Take names from the modules.
"""

from __future__ import annotations

__all__ = []
