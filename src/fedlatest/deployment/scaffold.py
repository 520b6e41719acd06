"""`fedlatest deploy init`: a complete Flower app to start from."""

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

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


NEEDED = ("job", "rounds")


def app_config(folder: Path) -> dict[str, Any]:
    """The keys that the app takes, with their defaults: `[tool.flwr.app.config]` of its pyproject.toml.

    `job` (the folder in which it writes `events.jsonl`) and `rounds` have to be among them: Flower refuses to set a key
    that an app does not list.
    """
    file = folder / "pyproject.toml"
    try:
        config = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"app {folder}: holds no pyproject.toml; name the folder of a Flower app") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: no [tool.flwr.app.config] can be read ({error!r})") from None
    for key in NEEDED:
        if key not in config:
            raise ConfigError(f"{file}: [tool.flwr.app.config] lacks {key}, which a deployment sets")
    return dict(config)
