"""Errors: one root, and below it what a caller can act on.

Each error is made from data (path, thread id, offset, errno) and writes its own sentence:
what went wrong, where, and what to do. Callers match types and fields, never texts. A bad
line met while reading is no error but a value, see `RolloutRecord.warning`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

__all__ = [
    "ActiveWriter",
    "ApprovalAnswered",
    "CallNotResolvable",
    "CallRefused",
    "CompactionRefused",
    "ForkPointInvalid",
    "ForkRefused",
    "InvalidLine",
    "InvalidThreadId",
    "ItemNotEncodable",
    "NotARollout",
    "PendingQueueFull",
    "RecordTooLarge",
    "RecorderClosed",
    "RedactionFailed",
    "RedactionUnavailable",
    "ResumeRefused",
    "RolloutError",
    "RolloutExists",
    "RolloutMoved",
    "RolloutReplaced",
    "RolloutUnreadable",
    "RolloutWriteError",
    "ThreadNotFound",
    "ThreadReferenced",
    "UnwrittenItems",
    "WriterFenced",
    "WriterHolder",
]

PathText = str | os.PathLike[str]

_REFUSALS_NAMED = 5


def _text(path: PathText | None) -> str | None:
    return None if path is None else os.fspath(path)


class RolloutError(Exception):
    """The root of everything this library raises on purpose.

    `code` is the stable machine-readable name (used by `--json`), `hint` says what to do.
    """

    code = "rollout_error"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        path: PathText | None = None,
        thread_id: str | None = None,
        offset_bytes: int | None = None,
        operation: str | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = _text(path)
        self.thread_id = thread_id
        self.offset_bytes = offset_bytes
        self.operation = operation
        self.errno = errno

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses take their own arguments: rebuild without calling them again.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(kind: type[RolloutError], args: tuple[Any, ...], state: dict[str, Any]) -> RolloutError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


# The caller's


class InvalidThreadId(RolloutError, ValueError):
    """The text is no UUID, so it can't name a thread or become a path."""

    code = "invalid_thread_id"

    def __init__(self, text: object) -> None:
        super().__init__(
            f"{str(text)[:80]!r} is not a thread id",
            hint="A thread id is a UUID such as 01960000-0000-7000-8000-000000000100",
        )
        self.text = text


class ItemNotEncodable(RolloutError, ValueError):
    """The item can't be written as JSON that reads back the same; nothing was accepted."""

    code = "item_not_encodable"

    def __init__(self, reason: str, *, item_type: str | None = None) -> None:
        what = f"an item of type {item_type}" if item_type else "the item"
        super().__init__(f"{what} can't be recorded: {reason}")
        self.reason = reason
        self.item_type = item_type


class RedactionFailed(ItemNotEncodable):
    """The redactor's hook failed, or changed what it may not: nothing was accepted, in clear least of all.

    Of the hook's own error it tells the name alone (`cause_type`): its text may hold what was to be hidden.
    """

    code = "redaction_failed"

    def __init__(self, reason: str, *, item_type: str | None = None, cause_type: str | None = None) -> None:
        super().__init__(f"the redactor {reason}", item_type=item_type)
        self.hint = "Mend the hook (RecorderConfig.redact, redact_items), then record the item again"
        self.cause_type = cause_type


class RedactionUnavailable(RolloutError):
    """The built-in rules need a package that isn't installed, or can't be loaded."""

    code = "redaction_unavailable"

    def __init__(self, cause: BaseException) -> None:
        super().__init__(
            f"the rules for secrets can't be loaded: {cause}",
            hint="Install them: pip install 'rollout-recorder[redact]'",
        )


class RecordTooLarge(RolloutError, ValueError):
    """One record exceeds `RecorderConfig.record_bytes_max`; nothing was accepted."""

    code = "record_too_large"

    def __init__(self, *, size_bytes: int, limit_bytes: int, item_type: str | None = None) -> None:
        super().__init__(
            f"a record of {size_bytes:,} bytes exceeds the limit of {limit_bytes:,} bytes",
            hint="Store the large part elsewhere and record a reference, or raise record_bytes_max",
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.item_type = item_type


class PendingQueueFull(RolloutError):
    """The pending queue holds its maximum of bytes not yet durable; nothing was accepted."""

    code = "pending_queue_full"

    def __init__(
        self, *, pending_bytes: int, limit_bytes: int, path: PathText, last_error: BaseException | None
    ) -> None:
        because = f" (the writer's last error: {last_error})" if last_error is not None else ""
        super().__init__(
            f"{pending_bytes:,} bytes wait to become durable in {_text(path)}, "
            f"the limit is {limit_bytes:,}{because}",
            hint="Await record() to wait for room, or free the disk",
            path=path,
        )
        self.pending_bytes = pending_bytes
        self.limit_bytes = limit_bytes
        self.last_error = last_error


class RecorderClosed(RolloutError):
    """The recorder no longer takes items: it was closed, discarded or belongs to a forked parent."""

    code = "recorder_closed"

    def __init__(self, *, path: PathText, reason: str = "closed") -> None:
        super().__init__(
            f"the recorder of {_text(path)} is {reason}", hint="Open the rollout again", path=path
        )
        self.reason = reason


class ThreadNotFound(RolloutError, LookupError):
    """No thread (or file) of that name exists."""

    code = "thread_not_found"

    def __init__(self, name: str, *, path: PathText | None = None) -> None:
        where = f" in {_text(path)}" if path is not None else ""
        super().__init__(f"no thread matches {name!r}{where}", path=path, thread_id=name)
        self.name = name


class ForkPointInvalid(RolloutError, ValueError):
    """The thread can't be forked there.

    If that is because a call's result stands behind the point, `call_id` names the call, and
    `nearest` are the nearest points before and behind it that are possible (fewer where there is none).
    """

    code = "fork_point_invalid"

    def __init__(
        self,
        point: str,
        reason: str,
        *,
        hint: str = "",
        path: PathText | None = None,
        call_id: str | None = None,
        nearest: Sequence[Any] = (),
    ) -> None:
        super().__init__(f"the point {point} can't be taken: {reason}", hint=hint, path=path)
        self.point = point
        self.reason = reason
        self.call_id = call_id
        self.nearest = tuple(nearest)


class ForkRefused(RolloutError):
    """The thread can't be forked in this way, whatever the point; nothing was made."""

    code = "fork_refused"

    def __init__(self, *, path: PathText, reason: str, hint: str = "") -> None:
        super().__init__(f"{_text(path)} can't be forked: {reason}", hint=hint, path=path)
        self.reason = reason


class ThreadReferenced(RolloutError):
    """Another thread's history rests on this one."""

    code = "thread_referenced"


class ResumeRefused(RolloutError):
    """Going on automatically could repeat a side effect, or go on from something else than was recorded.

    `reasons` are the codes of what stands against it; `refusals` tell of each at length, where known.
    """

    code = "resume_refused"

    def __init__(
        self,
        reasons: Sequence[str],
        *,
        refusals: Sequence[Any] = (),
        thread_id: str | None = None,
        path: PathText | None = None,
    ) -> None:
        told = [str(each) for each in refusals] or list(reasons)
        listed = "; ".join(told[:_REFUSALS_NAMED])
        if len(told) > _REFUSALS_NAMED:
            listed += f"; and {len(told) - _REFUSALS_NAMED} more"
        hints = [hint for each in refusals if (hint := getattr(each, "hint", ""))]
        super().__init__(
            f"resume refused: {listed}", hint=hints[0] if hints else "", thread_id=thread_id, path=path
        )
        self.reasons = tuple(reasons)
        self.refusals = tuple(refusals)


class CallNotResolvable(RolloutError, LookupError):
    """No decision can be recorded on that call; nothing was.

    `candidates` are the calls (turn id, call id) that a decision is wanted on, or that the id may mean.
    """

    code = "call_not_resolvable"

    def __init__(
        self,
        call_id: str,
        reason: str,
        *,
        hint: str = "",
        thread_id: str | None = None,
        candidates: Sequence[tuple[str | None, str]] = (),
    ) -> None:
        super().__init__(f"the call {call_id} can't be resolved: {reason}", hint=hint, thread_id=thread_id)
        self.call_id = call_id
        self.reason = reason
        self.candidates = tuple(candidates)


class CallRefused(RolloutError):
    """A tool call must not begin, or can't go on as it was told; nothing was recorded for that."""

    code = "call_refused"

    def __init__(self, call_id: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"the call {call_id} is refused: {reason}", hint=hint)
        self.call_id = call_id
        self.reason = reason


class ApprovalAnswered(RolloutError):
    """The question has its answer, or was never asked; nothing was recorded."""

    code = "approval_answered"

    def __init__(self, approval_id: str, state: str) -> None:
        super().__init__(f"the approval {approval_id} can't be answered: it is {state}")
        self.approval_id = approval_id
        self.state = state


class CompactionRefused(RolloutError):
    """The summary can't stand for the context; no checkpoint was recorded."""

    code = "compaction_refused"

    def __init__(self, *, path: PathText, reason: str, hint: str = "Compact again") -> None:
        super().__init__(f"{_text(path)} is not compacted: {reason}", hint=hint, path=path)
        self.reason = reason


# Another writer's


class WriterHolder:
    """Who holds a rollout: `pid`, `host`, `since`, `command`; each None where unknown."""

    __slots__ = ("command", "host", "pid", "since")

    def __init__(
        self,
        pid: int | None = None,
        host: str | None = None,
        since: str | None = None,
        command: str | None = None,
    ) -> None:
        self.pid = pid
        self.host = host
        self.since = since
        self.command = command

    def __str__(self) -> str:
        if self.pid is None:
            return "another writer"
        text = f"pid {self.pid}"
        if self.host:
            text += f" on {self.host}"
        if self.since:
            text += f" since {self.since}"
        return f"{text} ({self.command})" if self.command else text

    def __repr__(self) -> str:
        return f"WriterHolder({self.pid!r}, {self.host!r}, {self.since!r}, {self.command!r})"


class ActiveWriter(RolloutError):
    """A live writer holds the rollout; `holder` names it."""

    code = "active_writer"

    def __init__(
        self, *, path: PathText, holder: WriterHolder | None = None, thread_id: str | None = None
    ) -> None:
        self.holder = holder or WriterHolder()
        super().__init__(
            f"{thread_id or _text(path)} is being written by {self.holder}",
            hint="Its writer must stop first",
            path=path,
            thread_id=thread_id,
        )


class WriterFenced(RolloutError):
    """This writer lost its lock and must not write any more; `holder` names who has it now, if known.

    What it had not written is in the file `kept_path`; if no place took it, in `unwritten`: whole lines.
    """

    code = "writer_fenced"

    def __init__(
        self,
        *,
        path: PathText,
        reason: str,
        thread_id: str | None = None,
        holder: WriterHolder | None = None,
    ) -> None:
        self.holder = holder or WriterHolder()
        named = thread_id or _text(path)
        super().__init__(
            f"the writer of {named} lost its lock: {reason}",
            hint=f"Unwritten items were kept; bring them in with: rollout repair --replay {named}",
            path=path,
            thread_id=thread_id,
        )
        self.reason = reason
        self.kept_path: str | None = None
        self.unwritten = b""

    def note_kept(self, kept_path: str | None, unwritten: bytes) -> None:
        """Say where the items are that were not written."""
        self.kept_path, self.unwritten = kept_path, unwritten
        if unwritten:
            self.hint = f"No place took its {len(unwritten):,} unwritten bytes: save them from this error"


# The bytes'


class InvalidLine(RolloutError, ValueError):
    """These bytes are no valid line (FORMAT.md, Line); `reason` is one of a closed set of codes."""

    code = "invalid_line"

    def __init__(self, reason: str, detail: str = "", *, offset_bytes: int | None = None) -> None:
        super().__init__(detail or reason, offset_bytes=offset_bytes)
        self.reason = reason
        self.detail = detail or reason


class NotARollout(RolloutError, ValueError):
    """The file (or folder, or stream) is something else than a rollout."""

    code = "not_a_rollout"

    def __init__(self, *, path: PathText, reason: str, hint: str = "") -> None:
        super().__init__(f"{_text(path)} is not a rollout: {reason}", hint=hint, path=path)
        self.reason = reason


class RolloutExists(RolloutError, FileExistsError):
    """`create()` met a file that is not its own; nothing was changed."""

    code = "rollout_exists"

    def __init__(self, *, path: PathText, reason: str) -> None:
        super().__init__(
            f"{_text(path)} exists already: {reason}",
            hint="Append to it with RolloutRecorder.open(), or choose another path",
            path=path,
        )
        self.reason = reason


# The system's


class RolloutUnreadable(RolloutError):
    """The operating system refuses to open or read the file; the cause is chained."""

    code = "rollout_unreadable"

    def __init__(self, *, path: PathText, cause: OSError, operation: str = "open") -> None:
        super().__init__(
            f"can't {operation} {_text(path)}: {cause.strerror or cause}",
            hint="Check the owner and the mode of the file and its folders",
            path=path,
            operation=operation,
            errno=cause.errno,
        )


class RolloutWriteError(RolloutError):
    """A write, sync or reopen failed. The items stay pending; a later barrier can still succeed."""

    code = "rollout_write_error"

    def __init__(
        self,
        *,
        path: PathText,
        operation: str,
        cause: BaseException | None = None,
        message: str | None = None,
        hint: str = "The items are kept and written as soon as that works again",
        pending_items: int = 0,
        offset_bytes: int | None = None,
    ) -> None:
        reason = message or (getattr(cause, "strerror", None) or str(cause) or type(cause).__name__)
        super().__init__(
            f"{operation} of {_text(path)} failed: {reason}",
            hint=hint,
            path=path,
            operation=operation,
            errno=getattr(cause, "errno", None),
            offset_bytes=offset_bytes,
        )
        self.pending_items = pending_items


class RolloutMoved(RolloutWriteError):
    """The file was renamed under its writer. Rebuilding it would leave two live twins."""

    code = "rollout_moved"

    def __init__(self, *, path: PathText, moved_to: str | None, pending_items: int = 0) -> None:
        super().__init__(
            path=path,
            operation="check",
            message=f"it was renamed{f' to {moved_to}' if moved_to else ''} while it was being written",
            hint="Move it back: the writer goes on by itself",
            pending_items=pending_items,
        )
        self.moved_to = moved_to


class RolloutReplaced(RolloutWriteError):
    """Another file stands at the path now, with other content; it is left alone."""

    code = "rollout_replaced"

    def __init__(self, *, path: PathText, reason: str, pending_items: int = 0) -> None:
        super().__init__(
            path=path,
            operation="check",
            message=f"another file stands there now: {reason}",
            hint="Put the rollout back: the writer goes on by itself",
            pending_items=pending_items,
        )
        self.reason = reason


class UnwrittenItems(RolloutWriteError):
    """`aclose()` could not write everything. The rest is in `kept_path`, else in `unwritten`."""

    code = "unwritten_items"

    def __init__(
        self,
        *,
        path: PathText,
        cause: BaseException | None,
        kept_path: PathText | None,
        unwritten: bytes,
        pending_items: int,
    ) -> None:
        where = (
            f"kept in {_text(kept_path)}" if kept_path is not None else "carried by this error (.unwritten)"
        )
        super().__init__(
            path=path,
            operation="close",
            cause=cause,
            message=f"{pending_items} items are not durable ({cause or 'deadline passed'}); they are {where}",
            hint=f"When the disk works again: rollout repair --replay {_text(path)}",
            pending_items=pending_items,
        )
        self.kept_path = _text(kept_path)
        self.unwritten = unwritten
