"""Standard streams that never end a run: what cannot be shown is left out."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO, cast


class _Nowhere(io.TextIOBase):
    """Stands for a stream that the process lacks."""

    def write(self, text: str) -> int:
        return len(text)


class ShownText:
    """A stream that shows what the reader can take, and never fails.

    Characters that its encoding lacks become question marks. Once the reader is gone, as behind
    ``| head``, or the disk is full, nothing more is written to it.

    Args:
        stream: The stream behind; None where the process has none.

    Attributes:
        error: What made the stream fail, None unless it did; a reader that has left is no failure.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = cast("TextIO", _Nowhere()) if stream is None else stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write the text, or what can be shown of it."""
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
        """Flush the stream behind."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    def _give_up(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.error = self.error or error
        # What is buffered would fail again, at the latest when Python ends.
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def shown_output() -> Iterator[ShownText]:
    """Make standard output such a stream while the body runs, and yield it."""
    out = ShownText(sys.stdout)
    with redirect_stdout(cast("TextIO", out)):
        try:
            yield out
        finally:
            out.flush()
