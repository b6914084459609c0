"""Checksums in files of ``torch.save``, which ``torch.load`` ignores."""

import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

# Folder of the values of tensors inside a file of torch.save.
_VALUES = "/data/"
_BYTES_AT_ONCE = 2**20


def is_zip(path: Path) -> bool:
    """Whether a file is a zip file of ``torch.save``; files of older formats are not.

    Args:
        path: The file.

    Raises:
        ValueError: If the file is a zip file with a damaged end.
    """
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile as error:
        raise _damaged(path, _reason(error)) from error


def check_file(path: Path, *, argument: str = "source") -> None:
    """Compare all records of a file of ``torch.save`` with its checksums, if it has any.

    Args:
        path: The file. Files of the older format, before the zip files, have no checksums.
        argument: Argument name at the beginning of the message.

    Raises:
        ValueError: If it is damaged.
    """
    if is_zip(path):
        _check(path, lambda _: True, argument=argument)


def check_records(path: Path) -> None:
    """Compare all records of a zip file except tensor values with its checksums.

    Args:
        path: The file.

    Raises:
        ValueError: If it is damaged.
    """
    _check(path, lambda name: _VALUES not in name)


def check_storage(path: Path, name: str, tensor: Tensor) -> None:
    """Compare a tensor's values with the checksums of a zip file.

    Args:
        path: The file.
        name: Name of the tensor in the message.
        tensor: The tensor, mapped from the file.

    Raises:
        ValueError: If no record of the same length has the checksum of the values.
    """
    storage = tensor.untyped_storage()
    records = [record for record in _records(path) if record.file_size == storage.nbytes()]
    values = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().data
    checksums = {record.CRC for record in records}
    if _have_checksums(_records(path)) and zlib.crc32(values) not in checksums:
        raise _damaged(path, f"the values of {name} do not fit their checksum")


def _check(path: Path, wanted: Callable[[str], bool], *, argument: str = "source") -> None:
    records = _records(path)
    if not _have_checksums(records):
        return
    try:
        with zipfile.ZipFile(path) as file:
            for record in records:
                if wanted(record.filename):
                    _read_through(file, record)
    except Exception as error:
        raise _damaged(path, _reason(error), argument) from error


def _read_through(file: zipfile.ZipFile, record: zipfile.ZipInfo) -> None:
    """Read a record to its end: there the zip reader compares the checksum."""
    with file.open(record) as content:
        while content.read(_BYTES_AT_ONCE):
            pass


def _records(path: Path) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as file:
            return file.infolist()
    except Exception as error:
        raise _damaged(path, _reason(error)) from error


def _have_checksums(records: Iterable[zipfile.ZipInfo]) -> bool:
    # torch.serialization.set_crc32_options(False) writes zeros.
    return any(record.CRC for record in records)


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _damaged(path: Path, reason: str, argument: str = "source") -> ValueError:
    return ValueError(
        f"{argument}: expected a whole file of torch.save, got {path}, which is damaged: {reason}; "
        "fetch or save it again"
    )
