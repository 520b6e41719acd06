"""`fedlatest deploy init`: a complete Flower app to start from."""

from importlib import resources
from pathlib import Path

from fedlatest.errors import ConfigError

TEMPLATE = resources.files("fedlatest.deployment") / "template"
FILES = (
    "pyproject.toml",
    "README.md",
    "digits/__init__.py",
    "digits/task.py",
    "digits/client_app.py",
    "digits/server_app.py",
)


def write_app(folder: Path) -> list[Path]:
    """Write the app into a new or empty folder; what was written."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: is there already and not an empty folder; choose another")
    written = []
    try:
        for name in FILES:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((TEMPLATE / name).read_text(encoding="utf-8"), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written to ({error.strerror}); choose another folder") from error
    return written
