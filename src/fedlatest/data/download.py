"""Downloads without a published checksum: that of the first download is pinned, and later ones must match it."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from fedlatest.bounded_reading import TooLargeError
from fedlatest.data.cache import HashedFile, hash_file, write_shared
from fedlatest.data.progress import BytesCallback
from fedlatest.errors import DataError, FedlatestError
from fedlatest.paths import CACHE, DATA

CHUNK = 2**18  # bytes
MAX_DOWNLOAD = 2**32  # bytes; the largest file, of GloVe vectors, has 1.5 * 10^9

Check = Callable[[Path], None]  # raises a DataError if the content of a file is not the expected one


def fetch(
    url: str, folder: Path, *, check: Check, on_progress: BytesCallback | None = None, also_needed: str = ""
) -> HashedFile:
    """Return the file at a URL, downloaded into `folder` once.

    Only a file that passes `check` is kept. Its SHA-256 is then pinned in a file beside it (NAME.sha256, in the format
    of `sha256sum`) and compared at every later use.

    Args:
        url: Where to download the file.
        folder: Where to store it.
        check: Raises a DataError if the content is not the expected one.
        on_progress: Called with the number of bytes downloaded and the total.
        also_needed: What else a user without a network has to provide, for the error message.

    Raises:
        DataError: The file cannot be downloaded, fails the check, or differs from its pin.
    """
    path = folder / url.rpartition("/")[2]
    pin = path.with_name(path.name + ".sha256")
    pinned = _read_pin(pin)
    if path.is_file():
        return _verify_existing(hash_file(path), pin, pinned, check)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
            download = Path(temporary) / path.name  # under its own name, because readers go by the suffix
            _download(url, download, on_progress, also_needed)
            file = _verify_download(hash_file(download), url, pin, pinned, check)

            def move(draft: Path) -> None:
                download.replace(draft)

            _write(path, move)
    except OSError as error:
        raise _write_error(folder, error) from error
    return HashedFile(path, file.checksum)


class LimitedDownloader:
    """Downloads at most MAX_DOWNLOAD bytes to a file; can be given to `pooch.retrieve`."""

    def __init__(self, on_progress: BytesCallback | None = None) -> None:
        self.on_progress = on_progress

    def __call__(self, url: str, path: str, pooch: Any = None) -> None:
        """Write the file at a URL to `path`; raise TooLargeError, an OSError, when it proves to be larger."""
        from pooch import HTTPDownloader

        progress = _PoochProgress(self.on_progress) if self.on_progress else False
        with Path(path).open("wb") as file:
            HTTPDownloader(progressbar=progress, chunk_size=CHUNK)(url, _LimitedFile(file), pooch)


def _verify_existing(file: HashedFile, pin: Path, pinned: str | None, check: Check) -> HashedFile:
    """Compare a file in the folder with its pin; if it has none, check and pin it."""
    if pinned is None:
        check(file.path)
        _write_pin(pin, file)
    elif file.checksum != pinned:
        raise DataError(
            f"{file.path}: its sha256 is {file.checksum}, but {pinned} was pinned when it was first downloaded; delete "
            f"it to download it again, or delete {pin.name} beside it if you changed it on purpose"
        )
    return file


def _verify_download(file: HashedFile, url: str, pin: Path, pinned: str | None, check: Check) -> HashedFile:
    """Compare a download with the pin; if there is none, check and pin it."""
    if pinned is None:
        try:
            check(file.path)
        except DataError as error:
            raise DataError(f"{url}: does not have the expected content; the download was deleted ({error})") from error
        _write_pin(pin, file)
    elif file.checksum != pinned:
        raise DataError(
            f"{url}: has changed since it was first downloaded (its sha256 is {file.checksum}, {pinned} is pinned); "
            f"delete {pin} to accept the new file"
        )
    return file


def _download(url: str, path: Path, on_progress: BytesCallback | None, also_needed: str) -> None:
    try:
        LimitedDownloader(on_progress)(url, str(path))
    except (OSError, ValueError) as error:  # no network, HTTP errors, a broken connection
        raise DataError(
            f"{path.name} was not found and could not be downloaded from {url} ({type(error).__name__}: {error}). "
            f"Put it{also_needed} in a folder and pass the folder with --data or {DATA}."
        ) from error


def _read_pin(pin: Path) -> str | None:
    try:
        text = pin.read_text(encoding="ascii")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{pin}: cannot be read ({error}); delete it to pin the current file") from error
    pinned = text.partition(" ")[0]
    if len(pinned) != 64 or set(pinned) - set("0123456789abcdef"):
        raise DataError(f"{pin}: contains no sha256; delete it to pin the current file")
    return pinned


def _write_pin(pin: Path, file: HashedFile) -> None:
    def write(draft: Path) -> None:
        draft.write_text(f"{file.checksum}  {file.path.name}\n", encoding="ascii")

    _write(pin, write)


def _write(path: Path, write: Callable[[Path], None]) -> None:
    try:
        write_shared(path, write)
    except (OSError, FedlatestError) as error:
        raise _write_error(path, error) from error


def _write_error(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: cannot be written ({error}); choose another folder with {CACHE}")


class _LimitedFile:
    """A file of which at most MAX_DOWNLOAD bytes are written, counted after decoding what the server compressed."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.written = file, 0

    def write(self, content: bytes) -> None:
        self.written += len(content)
        if self.written > MAX_DOWNLOAD:
            raise TooLargeError(f"the server sends more than {MAX_DOWNLOAD:,} bytes")
        self.file.write(content)

    def flush(self) -> None:
        self.file.flush()


class _PoochProgress:
    """Adapts a BytesCallback to the progress bar interface of pooch."""

    def __init__(self, on_progress: BytesCallback) -> None:
        self.on_progress, self.done, self.total = on_progress, 0, 0

    def update(self, more: int) -> None:
        self.done += more
        self.on_progress(min(self.done, self.total) if self.total else self.done, self.total or None)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
