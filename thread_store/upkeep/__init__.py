"""What becomes of threads that nobody writes: put into the archive, compressed, pruned, deleted.

Take names from the modules.
"""

__all__: list[str] = []
