"""A Flower app in a folder: what its configuration lets one set."""

import tomllib
from pathlib import Path
from typing import Any

from fedlatest.errors import ConfigError

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
