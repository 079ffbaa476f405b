"""`python -m thread_store` is the command `rollout`."""

from __future__ import annotations

import sys

from thread_store.cli import main

if __name__ == "__main__":
    sys.exit(main())
