"""The forward reader: every record, a warning for each damaged line, one for all commands."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import NotARollout, RolloutUnreadable, ThreadNotFound
from protocol.line import encode_line
from rollout.reader import RolloutReader, read_rollout, require_rollout
from rollout.record import RolloutRecord
from tests.rollout.written import THREAD_ID, dump, line, message, meta, reasons, rollout, texts

BOM = b"\xef\xbb\xbf"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rollout.jsonl"


def read(source: Path | bytes, **options: int) -> list[RolloutRecord]:
    return list(read_rollout(io.BytesIO(source) if isinstance(source, bytes) else source, **options))


def codes(reader: RolloutReader) -> list[str]:
    for _ in reader:
        pass
    return [notice.code for notice in reader.notices]


def test_whole_rollout_gives_each_line_with_its_place(path: Path) -> None:
    """A record tells its line number, its byte offset, its size, and writes back as the same bytes."""
    data = rollout("one", "two")
    path.write_bytes(data)
    records = read(path)
    assert [record.line_no for record in records] == [1, 2, 3]
    for record in records:
        assert record.line is not None
        assert data[record.offset : record.offset + record.size + 1] == encode_line(record.line)
    assert b"".join(encode_line(record.line) for record in records if record.line) == data


@pytest.mark.case("B01")
@pytest.mark.guarantee("G5")
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"timestamp":"half', "not_json"),
        (b"\xff\xfe{}", "not_utf8"),
        (b'{"type":"event_msg","payload":{"a":"\xe2\x82"}}', "not_utf8"),
        (b"[1,2]", "not_an_object"),
        (b'"text"', "not_an_object"),
        (b"12", "not_an_object"),
        (b"null", "not_an_object"),
        (b"\0" * 700, "nul_bytes"),
        (b"\0" * 5 + b"{}", "nul_bytes"),
        (BOM + b"{}", "bom"),
        (b'{"a":' * 129 + b"1" + b"}" * 129, "too_deep"),
        (b"x" * 5000, "too_long"),
        (b"\0" * 5000, "nul_bytes"),
    ],
)
def test_bad_line_in_the_middle_is_skipped_with_its_place(path: Path, bad: bytes, reason: str) -> None:
    """A damaged line gives a warning with line number, offset, size and reason; all others come back."""
    before, after = rollout("before"), message("after", 2)
    path.write_bytes(before + bad + b"\n" + after)
    records = read(path, record_bytes_max=4096)
    assert texts(records) == ["before", "after"]
    (damaged,) = [record for record in records if record.line is None]
    warning = damaged.warning
    assert warning is not None
    assert (warning.reason, warning.line_no) == (reason, 3)
    assert (warning.offset_bytes, warning.size_bytes) == (len(before), len(bad))
    assert (damaged.line_no, damaged.offset, damaged.size) == (3, len(before), len(bad))


@pytest.mark.case("B02")
def test_fragment_glued_to_a_record_is_named_and_hides_nothing(path: Path) -> None:
    """A fragment that a later record was glued to is one bad line, whose warning says what stands in it."""
    fragment = message("lost", 2)[:50]
    path.write_bytes(rollout("kept") + fragment + message("glued", 2) + message("after", 3))
    records = read(path)
    assert texts(records) == ["kept", "after"]
    (warning,) = [record.warning for record in records if record.warning]
    assert warning.line_no == 3
    assert f"a whole record stands at byte {len(fragment)} of it" in warning.message


@pytest.mark.case("B131")
@pytest.mark.parametrize("glue", [b"", b"\0" * 9])
def test_two_whole_records_on_one_line_are_both_named(path: Path, glue: bytes) -> None:
    """Two whole records on one line: a warning with the line number says that both are there."""
    first = message("one", 1)[:-1]
    path.write_bytes(meta() + first + glue + message("two", 2) + message("three", 3))
    records = read(path)
    assert texts(records) == ["three"]
    (warning,) = [record.warning for record in records if record.warning]
    assert warning.line_no == 2
    assert f"2 whole records stand in it, at bytes 0, {len(first + glue)}" in warning.message


def test_record_padded_with_nuls_is_named(path: Path) -> None:
    """A record that NUL bytes follow on its line is not lost without a word."""
    path.write_bytes(meta() + message("padded", 1)[:-1] + b"\0" * 600 + b"\n" + message("after", 2))
    (warning,) = [record.warning for record in read(path) if record.warning]
    assert warning.reason == "nul_bytes"
    assert "a whole record stands at byte 0 of it" in warning.message


@pytest.mark.case("B04")
def test_cut_at_every_byte_of_the_last_record_keeps_the_earlier_ones(path: Path) -> None:
    """Cut anywhere in the last record, inside a multibyte character too: all earlier records come back."""
    whole = rollout("one", "two") + message("drei, 三, 🦀", 3)
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole)):
        path.write_bytes(whole[:cut])
        records = read(path)
        complete = cut == len(whole) - 1
        assert texts(records)[:2] == ["one", "two"]
        assert len(texts(records)) == (3 if complete else 2)
        assert reasons(records) == ([] if complete or cut == start else ["torn_tail"])


@pytest.mark.case("B12")
def test_half_a_line_is_never_shown_as_a_record(path: Path) -> None:
    """What another process has half written is a torn tail, and a record once it is whole."""
    path.write_bytes(rollout("one"))
    last = message("two", 2)
    for end in (1, len(last) // 2, len(last) - 2):
        path.write_bytes(rollout("one") + last[:end])
        assert texts(read(path)) == ["one"]
    path.write_bytes(rollout("one") + last)
    assert texts(read(path)) == ["one", "two"]


@pytest.mark.case("B05")
@pytest.mark.parametrize(
    ("data", "expected", "found"),
    [
        (rollout("a") + b"\0" * 512 + b"\n" + message("b", 2), ["a", "b"], ["nul_bytes"]),
        (rollout("a") + b"\0" * 4096, ["a"], ["torn_tail"]),
        (rollout("a") + message("b", 2) + b"\0" * (4096 - 700) + message("c", 3), ["a", "b"], ["nul_bytes"]),
        (b"\0" * 8192, [], ["torn_tail"]),
        (b"\0" * 8192 + b"\n", [], ["nul_bytes"]),
        (b"\0" * (1 << 20) + b"\n" + message("a", 1), ["a"], ["nul_bytes"]),
    ],
)
def test_nul_bytes_are_skipped_with_a_warning(
    path: Path, data: bytes, expected: list[str], found: list[str]
) -> None:
    """Runs of NUL bytes, wherever they stand, hide nothing but their own line; the file stays as it is."""
    path.write_bytes(data)
    records = read(path, record_bytes_max=64 << 10)
    assert (texts(records), reasons(records)) == (expected, found)
    assert path.read_bytes() == data


@pytest.mark.case("B39")
@pytest.mark.parametrize("char", "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\x7f\r")
def test_separators_inside_strings_break_no_line(path: Path, char: str) -> None:
    """Only the byte newline ends a line, whatever Unicode or Python call a line break."""
    text = f"left{char}right"
    escaped = message("x", 1).replace(b'"x"', dump(text))
    path.write_bytes(meta() + escaped + message("after", 2))
    assert texts(read(path)) == [text, "after"]


@pytest.mark.case("B39")
def test_raw_unicode_separators_break_no_line(path: Path) -> None:
    """U+2028, U+2029 and U+0085 stand unescaped in the files that Codex writes."""
    path.write_bytes(meta() + message("a\u2028b\u2029c\x85d", 1) + message("after", 2))
    assert texts(read(path)) == ["a\u2028b\u2029c\x85d", "after"]


@pytest.mark.case("B136")
def test_crlf_blank_lines_scalars_and_no_final_newline_are_read(path: Path) -> None:
    """CRLF, blank lines, lines that are no objects, records without timestamps, no final newline."""
    untimed = line("event_msg", {"type": "agent_message", "message": "m"}, stamp=None)
    data = meta(None) + b"\n   \n\t\n17\n[]\n" + untimed + message("last")
    path.write_bytes(data.replace(b"\n", b"\r\n")[:-2])
    reader = read_rollout(path)
    records = list(reader)
    assert [record.line_no for record in records] == [1, 5, 6, 7, 8]
    assert reasons(records) == ["not_an_object", "not_an_object"]
    assert reader.lines == 8
    assert texts(records) == ["last"]
    assert {"crlf", "no_final_newline"} <= set(codes(reader))
    assert records[3].line is not None
    assert records[3].line.timestamp is None


def test_bom_at_the_start_is_passed_over(path: Path) -> None:
    """A byte order mark at the very start is noted and belongs to no line; elsewhere a line is invalid."""
    path.write_bytes(BOM + meta() + BOM + message("no", 1) + message("yes", 2))
    reader = read_rollout(path)
    records = list(reader)
    assert records[0].offset == len(BOM)
    assert reasons(records) == ["bom"]
    assert texts(records) == ["yes"]
    assert codes(reader)[0] == "bom"


@pytest.mark.parametrize("data", [b"", BOM, b"\n", b"\n\n \n"])
def test_file_without_content_gives_nothing(path: Path, data: bytes) -> None:
    """An empty or blank file is read without an error and without a record."""
    path.write_bytes(data)
    assert read(path) == []


@pytest.mark.guarantee("G7")
def test_line_beyond_the_limit_is_passed_over_in_bounded_memory(path: Path) -> None:
    """A line of 40 MiB costs no more memory than the limit and a block, and its warning tells its size."""
    import tracemalloc

    size = 40 << 20
    with path.open("wb") as file:
        file.write(rollout("before"))
        file.writelines(b"x" * (1 << 20) for _ in range(40))
        file.write(b"\n" + message("after", 2))
    tracemalloc.start()
    records = read(path, record_bytes_max=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert texts(records) == ["before", "after"]
    (warning,) = [record.warning for record in records if record.warning]
    assert (warning.reason, warning.size_bytes, warning.line_no) == ("too_long", size, 3)
    assert peak < 4 << 20


def test_line_at_the_limit_is_read(path: Path) -> None:
    """The limit itself is permitted, one byte more is not, whatever the size of the blocks."""
    data = message("x" * 300, 1)
    for block_bytes in (1, 7, 64, 1 << 16):
        read_in = io.BytesIO(meta() + data)
        assert len(list(read_rollout(read_in, record_bytes_max=len(data) - 1, block_bytes=block_bytes))) == 2
        records = list(
            read_rollout(io.BytesIO(meta() + data), record_bytes_max=len(data) - 2, block_bytes=block_bytes)
        )
        assert reasons(records) == ["too_long"]


@given(
    st.lists(
        st.sampled_from(
            [*rollout("a", "bb").splitlines(keepends=True), b"\n", b"{\n", b"\0\0", b"\r\n", b"x"]
        )
    ),
    st.integers(1, 64),
)
def test_records_do_not_depend_on_the_size_of_blocks(parts: list[bytes], block_bytes: int) -> None:
    """Read in blocks of any size, a file gives the same records."""
    data = b"".join(parts)
    whole = list(read_rollout(io.BytesIO(data)))
    assert list(read_rollout(io.BytesIO(data), block_bytes=block_bytes)) == whole


# Ordinals


@pytest.mark.case("B33")
@pytest.mark.parametrize(
    ("ordinals", "notices", "following"),
    [
        ([0, 1, 2], [], 3),
        ([0, 1, 1, 2], ["ordinal_repeated"], 3),
        ([0, 1, 5, 6], ["ordinal_gap"], 7),
        ([0, 5, 3, 4], ["ordinal_gap", "ordinal_step_back"], 6),
        ([0, 1, None, 2], ["ordinal_absent"], 3),
        ([None, 1, 2], ["ordinal_gap", "ordinal_absent"], 3),
        ([None, None], ["ordinal_absent"], 0),
        ([3, 4], ["ordinal_gap"], 5),
        ([0, -7], ["ordinal_step_back"], 1),
        ([-1], ["ordinal_step_back"], 0),
    ],
)
def test_odd_ordinals_load_with_a_notice(
    ordinals: list[int | None], notices: list[str], following: int
) -> None:
    """Repeated, missing, decreasing or absent ordinals: all loads, a notice says so, next is maximum + 1."""
    data = meta(ordinals[0]) + b"".join(message("m", ordinal) for ordinal in ordinals[1:])
    reader = read_rollout(io.BytesIO(data))
    assert len([record for record in reader if record.line]) == len(ordinals)
    assert sorted(codes(reader)) == sorted(notices)
    assert reader.next_ordinal == following


@pytest.mark.case("B34")
def test_lower_last_ordinal_leaves_the_maximum(path: Path) -> None:
    """The last line has a lower number than an earlier one: the next is still maximum + 1, past any width."""
    path.write_bytes(meta() + message("a", 99_999) + message("b", 7))
    reader = read_rollout(path)
    for _ in reader:
        pass
    assert (reader.max_ordinal, reader.next_ordinal) == (99_999, 100_000)


def test_ordinals_after_a_base_begin_there() -> None:
    """A rollout that goes on from a base begins with the base's next ordinal, and nothing is missing."""
    base = {"thread_id": THREAD_ID, "end_ordinal_exclusive": 14, "end_byte_offset": 900}
    reader = read_rollout(io.BytesIO(meta(14, history_base=base) + message("a", 15)))
    assert codes(reader) == []


def test_own_types_need_no_ordinal() -> None:
    """Own records carry none, between numbered ones: nothing to note."""
    data = meta() + line("x_writer", {"event": "opened"}) + message("a", 1) + line("x_call", {})
    assert codes(read_rollout(io.BytesIO(data))) == []


def test_many_oddities_cost_one_notice_each() -> None:
    """A file in which everything repeats gives one notice with a count, not one a line."""
    reader = read_rollout(io.BytesIO(meta() + message("a", 0) * 500))
    list(reader)
    (notice,) = reader.notices
    assert (notice.code, notice.count, notice.line_no) == ("ordinal_repeated", 500, 2)


# The header


def test_meta_of_a_rollout_is_decoded(path: Path) -> None:
    """The first session_meta gives the thread id; it is there as a record and as an item."""
    path.write_bytes(rollout("a"))
    reader = read_rollout(path)
    list(reader)
    assert reader.thread_id == THREAD_ID
    assert reader.meta_record is not None
    assert reader.meta_record.line_no == 1
    assert reader.meta is not None


@pytest.mark.case("B58")
def test_header_behind_an_unknown_first_line_is_found(path: Path) -> None:
    """First line of an unknown type, header second: the header is found, with a notice."""
    path.write_bytes(line("x_unknown", {"a": 1}) + rollout("a"))
    reader = read_rollout(path)
    list(reader)
    assert reader.thread_id == THREAD_ID
    assert "meta_late" in codes(reader)
    assert require_rollout(path).thread_id == THREAD_ID


def test_blank_lines_before_the_header_do_not_make_it_late() -> None:
    """Blank lines are no records: a header behind them is the first one."""
    assert codes(read_rollout(io.BytesIO(b"\n \n" + rollout("a")))) == []


@pytest.mark.case("B121")
def test_later_session_meta_is_history(path: Path) -> None:
    """A fork replays its parent's session_meta: the first one is the thread's, no error, a notice."""
    other = "01960000-0000-7000-8000-0000000000aa"
    path.write_bytes(meta() + meta(None, id=other) + message("a", 1))
    reader = read_rollout(path)
    assert len(list(reader)) == 3
    assert reader.thread_id == THREAD_ID
    assert "meta_repeated" in codes(reader)


def test_id_that_is_no_uuid_is_kept_as_text() -> None:
    """Old files have ids that are no UUIDs: kept as they are, with a notice."""
    reader = read_rollout(io.BytesIO(meta(id="../etc/passwd")))
    list(reader)
    assert reader.thread_id == "../etc/passwd"
    assert codes(reader) == ["id_not_uuid"]


def test_rollout_without_header_is_read_with_a_notice() -> None:
    """Its header was lost: the records come back all the same."""
    reader = read_rollout(io.BytesIO(message("a", 0) + message("b", 1)))
    assert texts(list(reader)) == ["a", "b"]
    assert codes(reader) == ["meta_absent"]


# What can't be read


@pytest.mark.case("B56")
def test_absent_file_is_not_found(tmp_path: Path) -> None:
    """A path where nothing stands raises ThreadNotFound and names it."""
    path = tmp_path / "no.jsonl"
    with pytest.raises(ThreadNotFound, match=r"no\.jsonl") as caught:
        read_rollout(path)
    assert caught.value.path == str(path)
    with pytest.raises(ThreadNotFound):
        read_rollout(tmp_path / "file" / "below.jsonl")


@pytest.mark.case("B56")
def test_folder_is_not_a_rollout(tmp_path: Path) -> None:
    """A folder raises NotARollout and says that it is one."""
    with pytest.raises(NotARollout, match="it is a folder"):
        read_rollout(tmp_path)


def test_socket_is_not_a_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket in a home is refused by its kind."""
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s.jsonl")
        with pytest.raises(NotARollout, match="socket"):
            read_rollout("s.jsonl")


@pytest.mark.case("B56")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (BOM, "it is empty"),
        (b"\n \n", "it is blank"),
        (b"\0" * 4096, "nothing but NUL bytes"),
        (b"\x7fELF\x02\x01" * 40, "not one of its lines is valid"),
        (b"line\nline\n", "not one of its lines is valid"),
        (meta()[:40], r"its only line was never finished \(40 bytes\)"),
    ],
)
def test_file_without_a_valid_line_is_not_a_rollout(path: Path, data: bytes, reason: str) -> None:
    """Zero bytes, NULs, binary or a torn first line: NotARollout, each with its own message."""
    path.write_bytes(data)
    with pytest.raises(NotARollout, match=reason):
        require_rollout(path)


@pytest.mark.case("B135")
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            [{"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"}],
            "codex exec --json",
        ),
        ([{"type": "item.completed", "item": {"id": "i"}}], "codex exec --json"),
        ([{"model": "m", "messages": [], "stream": True}], "a log of requests to a model"),
        ([{"type": "user", "uuid": "u", "sessionId": "s", "message": {}}], "Claude Code"),
        ([{"sessionId": "s", "projectHash": "h"}], "Gemini CLI"),
        ([{"type": "session", "version": 3, "id": "x", "cwd": "/"}], "pi or omp"),
        ([{"event_id": "e", "event_type": "message", "payload": {}}], "MyCodeAgent"),
        ([{"id": "i", "thread_name": "n", "updated_at": "u"}], "session index"),
        ([{"session_id": "s", "ts": 1, "text": "t"}], "prompt history"),
        ([{"a": 1, "b": 2}], "the keys of the first are 'a', 'b'"),
    ],
)
def test_another_grammar_is_called_by_its_name(path: Path, values: list[object], reason: str) -> None:
    """A file of another grammar says what it is instead of "0 records"."""
    path.write_bytes(b"".join(dump(value) + b"\n" for value in values))
    with pytest.raises(NotARollout, match=reason):
        require_rollout(path)


def test_pretty_printed_export_is_called_by_its_name(path: Path) -> None:
    """A document of another tool, over many lines, is recognised as well."""
    path.write_text('{\n  "info": {\n    "id": "ses_1"\n  },\n  "messages": []\n}\n')
    with pytest.raises(NotARollout, match="opencode export"):
        require_rollout(path)


@pytest.mark.case("B57")
def test_refused_file_is_named_with_what_to_do(path: Path) -> None:
    """EPERM and EACCES: the error names the file and says what to do."""
    path.write_bytes(rollout("a"))
    cause = PermissionError(13, "Permission denied")
    original = os.open

    def refuse(name: object, *arguments: int, **options: int) -> int:
        if name == str(path):
            raise cause
        return original(name, *arguments, **options)  # type: ignore[call-overload, no-any-return]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(
            RolloutUnreadable, match=r"rollout\.jsonl.*Permission denied.*Check the owner"
        ) as caught:
            read_rollout(path)
    assert caught.value.errno == 13


def test_read_error_is_raised_after_what_was_read(path: Path) -> None:
    """A failing disk is an error that names the file, after the records that could be read."""
    path.write_bytes(rollout("one", "two"))
    reader = read_rollout(path, block_bytes=256)
    seen = [next(iter(reader))]
    with pytest.MonkeyPatch.context() as patch:

        def fail(*_: object) -> bytes:
            raise OSError(5, "Input/output error")

        patch.setattr(os, "pread", fail)
        with pytest.raises(RolloutUnreadable, match="read") as caught:
            seen.extend(reader)
    assert seen
    assert caught.value.path == str(path)


# Sources


def test_stdin_is_read_when_asked_for(path: Path) -> None:
    """`-` reads standard input, as it comes, from a pipe."""
    program = (
        "from rollout.reader import read_rollout\nprint(sum(r.line is not None for r in read_rollout('-')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=rollout("a", "b"), capture_output=True, check=True, timeout=60
    )
    assert done.stdout.strip() == b"3"


def test_record_from_a_pipe_comes_before_the_pipe_ends() -> None:
    """What has arrived through a pipe is given at once, not held back until a block is full."""
    receiving, sending = os.pipe()
    with open(receiving, "rb") as pipe, open(sending, "wb", buffering=0) as sender:
        sender.write(rollout("one"))
        records = iter(read_rollout(pipe))
        assert next(records).line_no == 1
        assert texts([next(records)]) == ["one"]
        closer = threading.Thread(target=lambda: (sender.write(message("two", 2)), sender.close()))
        closer.start()
        assert texts(list(records)) == ["two"]
        closer.join()


def test_start_offset_reads_from_there_without_line_numbers(path: Path) -> None:
    """From an offset on a line border the same records come, with the same offsets and no line numbers."""
    data = rollout("one", "two", "three")
    path.write_bytes(data)
    whole = read(path)
    for record in whole:
        tail = read(path, start_offset=record.offset)
        assert [each.offset for each in tail] == [
            each.offset for each in whole if each.offset >= record.offset
        ]
        assert all(each.line_no is None for each in tail) or record.offset == 0


def test_end_offset_reads_no_further(path: Path) -> None:
    """Up to an offset nothing behind it is read; a line that it cuts is a torn tail."""
    data = rollout("one", "two")
    path.write_bytes(data)
    border = data.rindex(b"\n", 0, -1) + 1
    assert texts(read(path, end_offset=border)) == ["one"]
    assert reasons(read(path, end_offset=border)) == []
    assert reasons(read(path, end_offset=border + 9)) == ["torn_tail"]


def test_text_file_is_refused(tmp_path: Path) -> None:
    """A file that was opened as text would hide what its bytes are."""
    with pytest.raises(TypeError, match="binary"):
        read_rollout(io.StringIO("{}"))  # type: ignore[arg-type]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_reader_lets_go_of_its_file(path: Path) -> None:
    """Iterated to the end, left in a `with`, or dropped half way: no descriptor stays open."""
    path.write_bytes(rollout("one", "two"))
    before = open_descriptors()
    list(read_rollout(path))
    with read_rollout(path) as reader:
        next(iter(reader))
    next(iter(read_rollout(path)))
    read_rollout(path)
    assert open_descriptors() == before


def test_file_that_the_caller_opened_stays_open(path: Path) -> None:
    """An open file, or a descriptor, belongs to the caller; a descriptor's position isn't moved."""
    path.write_bytes(rollout("one"))
    with path.open("rb") as file:
        list(read_rollout(file))
        assert not file.closed
        os.lseek(file.fileno(), 7, os.SEEK_SET)
        assert len(list(read_rollout(file.fileno()))) == 2
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 7


# Formats


@pytest.mark.case("B113")
@pytest.mark.parametrize(
    "odd",
    [
        line("brand_new_type", {"deep": {"a": [1, 2.50, 1e400]}}),
        line("event_msg", {"type": "turn.completed", "x": None}),
        line("response_item", {"type": "message", "role": "user", "content": [], "zzz": 1}),
        b'{"payload":{"b":1,  "a":2},"type" : "event_msg","crc":"77","timestamp":"t"}\n',
        b'{"timestamp":"t","type":"event_msg","payload":{"n":12345678901234567890123,"f":1.10}}\n',
        b'{"timestamp":"t","type":"event_msg","payload":{"s":"\\ud800"}}\n',
    ],
)
def test_unknown_parts_are_kept_byte_for_byte(path: Path, odd: bytes) -> None:
    """Unknown types, variants, keys, spacing and numbers come through reading and writing unchanged."""
    data = meta() + odd + message("after", 1)
    path.write_bytes(data)
    records = read(path)
    assert reasons(records) == []
    assert b"".join(encode_line(record.line) for record in records if record.line) == data


@pytest.mark.case("B114")
def test_old_and_new_lines_in_one_file_are_both_read(path: Path) -> None:
    """Bare items of an old format between new lines: each line is raised by itself."""
    old_header = dump({"id": THREAD_ID, "timestamp": "2025-09-27T18:58:38.331Z", "instructions": None})
    old_item = dump({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "old"}]})
    path.write_bytes(old_header + b"\n" + old_item + b"\n" + message("new"))
    reader = read_rollout(path)
    records = list(reader)
    assert [record.line and record.line.type for record in records] == [
        "session_meta",
        "response_item",
        "response_item",
    ]
    assert texts(records) == ["old", "new"]
    assert reader.thread_id == THREAD_ID


@pytest.mark.case("B136")
@pytest.mark.parametrize("indent", [None, 2])
def test_one_document_rollout_is_read(path: Path, indent: int | None) -> None:
    """The oldest format, one JSON document for the whole session, gives its records as well."""
    import json

    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"type": "local_shell_call", "status": "completed", "call_id": "c", "action": {"type": "exec"}},
    ]
    document = {"session": {"id": "s-1", "timestamp": "2025-04-23T11:00:00Z"}, "items": items}
    path.write_text(json.dumps(document, indent=indent))
    reader = read_rollout(path)
    records = list(reader)
    assert reader.thread_id == "s-1"
    assert texts(records) == ["hello"]
    assert len(records) == 3
    assert "one_document" in codes(reader)


def test_document_that_is_none_is_read_as_lines(path: Path) -> None:
    """A file that only begins like a document is judged line by line, and loses nothing."""
    path.write_bytes(b'{"session":1\n' + rollout("a"))
    records = read(path)
    assert texts(records) == ["a"]
    assert reasons(records) == ["not_json"]
