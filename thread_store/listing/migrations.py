"""The form of the derived index, and how an older one becomes the newest.

Invariant: a migration is applied whole or not at all (one transaction each, which SQLite finishes or undoes
whatever is killed), in order, and once: the table `migrations` says which were. So one that failed half way
is applied by the next start, and applying them again changes nothing.

Rules for a new migration, so that an older version may go on writing beside a newer one:

* append it, never change one that was published;
* only add: tables, and columns that may be NULL. An older version leaves them NULL, which means "not known";
* a table whose meaning changes gets a new name. The older version goes on in the old one;
* where that can't be, give the migration's own number as its `oldest`: versions that know fewer migrations
  than that do without the index, and leave it alone.

Every row is checked by whoever reads it (a checksum, the version of its content); what doesn't fit counts as
not there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["APPLICATION_ID", "MIGRATIONS", "IndexNotUsable", "Migration", "migrate"]

APPLICATION_ID = 0x524F4C4C
"""In the header of the file: it is ours."""


class IndexNotUsable(Exception):
    """The file is no index of ours, or of a version that this one must leave alone."""


class Migration(NamedTuple):
    """`oldest`: versions that know fewer migrations than that must leave the index alone."""

    number: int
    name: str
    statements: tuple[str, ...]
    oldest: int = 0


MIGRATIONS = (
    Migration(
        1,
        "names in folders",
        (
            """CREATE TABLE folders (
                folder TEXT PRIMARY KEY, device INTEGER NOT NULL, inode INTEGER NOT NULL,
                mtime_ns INTEGER NOT NULL, summary BLOB NOT NULL, checksum INTEGER NOT NULL
            )""",
            """CREATE TABLE folder_names (
                folder TEXT PRIMARY KEY, mtime_ns INTEGER NOT NULL,
                names BLOB NOT NULL, checksum INTEGER NOT NULL,
                tails BLOB NOT NULL, tails_checksum INTEGER NOT NULL
            )""",
            """CREATE TABLE several (
                home INTEGER PRIMARY KEY, states TEXT NOT NULL,
                tails BLOB NOT NULL, checksum INTEGER NOT NULL
            )""",
        ),
    ),
    Migration(
        2,
        "facts of rollouts",
        (
            """CREATE TABLE facts (
                path TEXT NOT NULL, version INTEGER NOT NULL, size INTEGER NOT NULL,
                mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL, facts BLOB NOT NULL,
                checksum INTEGER NOT NULL, PRIMARY KEY (path, version)
            )""",
        ),
    ),
)


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring an index to the newest form. The connection is in autocommit mode.

    Raises:
        IndexNotUsable: it must be left alone.
        sqlite3.Error: it can't be done now; what was done stays, and the next call goes on from there.
    """
    applied = _applied(connection)
    if applied is None:
        _begin(connection)
        applied = {}
    if max(applied.values(), default=0) > len(migrations):
        raise IndexNotUsable("it belongs to a newer version")
    for each in migrations:
        if each.number not in applied:
            _apply(connection, each)


def _applied(connection: sqlite3.Connection) -> dict[int, int] | None:
    """The migrations that were applied, each with its `oldest`; None where there is nothing yet."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if application != APPLICATION_ID:
        if tables or application:
            raise IndexNotUsable("it is a database of another program")
        return None
    if "migrations" not in tables:
        return None
    return dict(connection.execute("SELECT number, oldest FROM migrations"))


def _begin(connection: sqlite3.Connection) -> None:
    _in_one(
        connection,
        "CREATE TABLE IF NOT EXISTS migrations ("
        "number INTEGER PRIMARY KEY, name TEXT NOT NULL, oldest INTEGER NOT NULL)",
        f"PRAGMA application_id = {APPLICATION_ID}",
    )


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = connection.execute("SELECT 1 FROM migrations WHERE number = ?", (migration.number,))
        if found.fetchone() is None:  # else another process was quicker
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO migrations VALUES (?, ?, ?)",
                (migration.number, migration.name, migration.oldest),
            )
        connection.execute("COMMIT")
    except BaseException:
        _undo(connection)
        raise


def _in_one(connection: sqlite3.Connection, *statements: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        _undo(connection)
        raise


def _undo(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
