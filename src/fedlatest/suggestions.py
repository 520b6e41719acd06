"""What a user probably meant who typed an unknown name; error messages about names end with it."""

import difflib
from collections.abc import Iterable, Mapping

MAX_LISTED = 12  # names that a message lists; it names the command that lists more


def did_you_mean(name: str, known: Iterable[str], *, aliases: Mapping[str, str] | None = None, listed: str = "") -> str:
    """Return the end of an error message about an unknown name: what was probably meant, or where the names are listed.

    Args:
        name: The unknown name.
        known: The known names.
        aliases: Names in lower case that are common elsewhere, and the known names for the same, separated by spaces.
        listed: The command that lists the known names, if they are too many for a message.

    >>> did_you_mean("FedLAvg", ["fedavg", "fedlaavg"])
    '; did you mean fedlaavg?'
    >>> did_you_mean("C", ["local_steps", "participation"], aliases={"c": "local_steps participation"})
    '; did you mean local_steps or participation?'
    >>> did_you_mean("x", ["a", "b"])
    '; choose one of a, b'
    """
    spelled = {_plain(each): each for each in known}
    text = _plain(name)
    meant = [spelled[alias] for alias in map(_plain, (aliases or {}).get(text, "").split()) if alias in spelled]
    meant = meant or [spelled[each] for each in difflib.get_close_matches(text, spelled, n=1)]
    if len(text) > 2:  # part of a name: `clients` for `num_clients`
        meant = meant or [each for plain, each in spelled.items() if text in plain][:3]
    if meant:
        return f"; did you mean {' or '.join(meant)}?"
    if listed and len(spelled) > MAX_LISTED:
        return f"; `{listed}` lists the names"
    return f"; choose one of {', '.join(spelled.values())}"


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
