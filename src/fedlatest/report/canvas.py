"""What every figure starts and ends with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedlatest.errors import RunFolderError

Dashes = str | tuple[float, tuple[float, ...]]


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """An empty figure of a size in inches, without any global state."""
    with mpl.rc_context(
        {
            "font.size": 9,
            "axes.titlesize": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "pdf.fonttype": 42,  # fonts that printers and journals take
        }
    ):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG or PDF, by the file's ending."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: the figure could not be written ({error})") from error
    return path
