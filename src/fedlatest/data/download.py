"""Downloads for which no checksum is published: that of the first is pinned, and everything later must match it."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from fedlatest.data.cache import Source, source
from fedlatest.data.progress import Told
from fedlatest.errors import DataError
from fedlatest.paths import CACHE, DATA

CHUNK = 2**18  # bytes


def fetch(
    url: str, folder: Path, *, check: Callable[[Path], None], told: Told | None = None, beside: str = ""
) -> Source:
    """The file behind a URL, downloaded into `folder` once.

    `check` raises a DataError if the content is not what it should be; only what passes is kept. Its sha256 is then
    pinned in a file beside it (NAME.sha256, as `sha256sum` writes it) and compared at every later use. `beside` says
    what else somebody without a network has to fetch.
    """
    path = folder / url.rpartition("/")[2]
    pin = path.with_name(path.name + ".sha256")
    pinned = _read_pin(pin)
    if path.is_file():
        return _trusted(source(path), pin, pinned, check)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".draft-") as place:
            draft = Path(place) / path.name
            _download(url, draft, told, beside)
            found = _accepted(source(draft), url, pin, pinned, check)
            draft.replace(path)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error}); name another folder with {CACHE}") from error
    return Source(path, found.checksum)


def _trusted(file: Source, pin: Path, pinned: str | None, check: Callable[[Path], None]) -> Source:
    """A file that lies there must be the one that was pinned; without a pin it gets one."""
    if pinned is None:
        check(file.path)
        _write_pin(pin, file)
    elif file.checksum != pinned:
        raise DataError(
            f"{file.path}: its sha256 is {file.checksum}, but {pinned} was pinned when it was first downloaded; delete "
            f"it to download it again, or delete {pin.name} beside it if you changed it on purpose"
        )
    return file


def _accepted(file: Source, url: str, pin: Path, pinned: str | None, check: Callable[[Path], None]) -> Source:
    """Pin what came if it is the first; otherwise it must be what came first."""
    if pinned is None:
        try:
            check(file.path)
        except DataError as error:
            raise DataError(f"{url}: is not what it should be, nothing is kept of it ({error})") from error
        _write_pin(pin, file)
    elif file.checksum != pinned:
        raise DataError(
            f"{url}: has changed since it was first downloaded (its sha256 is {file.checksum}, {pinned} is pinned); "
            f"delete {pin} to take the new one"
        )
    return file


def _download(url: str, draft: Path, told: Told | None, beside: str) -> None:
    import pooch

    download = pooch.HTTPDownloader(progressbar=_Bar(told) if told else False, chunk_size=CHUNK)
    try:
        download(url, str(draft), None)
    except (OSError, ValueError) as error:  # no network, no such page, a broken connection
        raise DataError(
            f"{draft.name} is not here and could not be downloaded from {url} ({type(error).__name__}: {error}). "
            f"Put it{beside} in a folder and name that with --data or {DATA}."
        ) from error


def _read_pin(pin: Path) -> str | None:
    try:
        text = pin.read_text(encoding="ascii")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{pin}: cannot be read ({error}); delete it to pin what is there now") from error
    pinned = text.partition(" ")[0]
    if len(pinned) != 64 or set(pinned) - set("0123456789abcdef"):
        raise DataError(f"{pin}: holds no sha256; delete it to pin what is there now")
    return pinned


def _write_pin(pin: Path, file: Source) -> None:
    try:
        pin.write_text(f"{file.checksum}  {file.path.name}\n", encoding="ascii")
    except OSError as error:
        raise DataError(f"{pin}: cannot be written ({error}); name another folder with {CACHE}") from error


class _Bar:
    """What pooch takes for a progress bar."""

    def __init__(self, told: Told) -> None:
        self.told, self.done, self.total = told, 0, 0

    def update(self, more: int) -> None:
        self.done += more
        self.told(min(self.done, self.total) if self.total else self.done, self.total or None)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        """Nothing is open."""
