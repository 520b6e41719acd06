"""The app that `fedlatest deploy init` writes, and the run config of any Flower app."""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from fedlatest.errors import ConfigError

TEMPLATE = resources.files("fedlatest.deployment") / "template"
REQUIRED_KEYS = ("job", "rounds")  # of a run config, for `fedlatest deploy local`
FILES = (
    "pyproject.toml",
    "README.md",
    "digits/__init__.py",
    "digits/task.py",
    "digits/client_app.py",
    "digits/server_app.py",
)


def write_app(folder: Path) -> list[Path]:
    """Write the app into a new or empty folder, and return the paths of its files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: exists and is not an empty folder; choose another")
    written = []
    try:
        for name in FILES:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((TEMPLATE / name).read_text(encoding="utf-8"), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from error
    return written


def app_config(folder: Path) -> dict[str, Any]:
    """Return the run config of an app with its default values: `[tool.flwr.app.config]` in its pyproject.toml.

    Raises:
        ConfigError: There is no such table, or it lacks `job` (the folder for `events.jsonl`) or `rounds`. A deployment
            sets both, and Flower refuses to set a key that the app does not list.
    """
    file = folder / "pyproject.toml"
    try:
        config = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"app {folder}: contains no pyproject.toml; give the folder of a Flower app") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: [tool.flwr.app.config] cannot be read ({error!r})") from None
    for key in REQUIRED_KEYS:
        if key not in config:
            raise ConfigError(f"{file}: [tool.flwr.app.config] lacks {key}, which a deployment sets")
    return dict(config)
