"""Standard streams that never end a run: text that cannot be shown is left out."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO, cast


class _Nowhere(io.TextIOBase):
    """Stands for a missing stream of the process."""

    def write(self, text: str) -> int:
        return len(text)


class ShownText:
    """A stream that never fails; it leaves out text that the reader cannot take.

    Characters outside its encoding become question marks. When the reader has ended, as with
    ``| head``, or the disk is full, no more text is written.

    Args:
        stream: The underlying stream; None if the process lacks it.

    Attributes:
        error: The error of the stream, None without an error; a reader that has ended is no error.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = cast("TextIO", _Nowhere()) if stream is None else stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write the text, or the part of it that can be shown."""
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            self.write(text.encode(encoding, "replace").decode(encoding))
        except OSError as error:
            self._give_up(error)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write each text."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the underlying stream."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    def _give_up(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.error = self.error or error
        # The buffered text would fail again, at the latest when Python ends.
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def shown_output() -> Iterator[ShownText]:
    """Replace standard output by a `ShownText` while the body runs, and yield it."""
    out = ShownText(sys.stdout)
    with redirect_stdout(cast("TextIO", out)):
        try:
            yield out
        finally:
            out.flush()
