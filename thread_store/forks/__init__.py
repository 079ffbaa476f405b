"""Forks, reverts and take-overs: new rollouts that go on from a place in an old one."""

from __future__ import annotations

__all__ = []
