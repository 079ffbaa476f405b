"""Chains: the files that the history of a thread is made of, and places in them."""

from __future__ import annotations

__all__ = []
