"""A file that others write is synced: what failed once is not believed later."""

from __future__ import annotations
