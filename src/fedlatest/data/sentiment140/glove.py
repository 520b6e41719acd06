"""GloVe word vectors, read from their text format."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.data.progress import BytesCallback
from fedlatest.data.text_files import read_lines
from fedlatest.errors import DataError

DIMENSIONS = 25
MAX_MALFORMED = 0.01  # share of the lines


def read_glove(
    path: Path, words: Sequence[str], *, dimensions: int = DIMENSIONS, on_progress: BytesCallback | None = None
) -> npt.NDArray[np.float32]:
    """Return [words, dimensions] the vectors of some words; a word that is not in the file gets zeros.

    The file is streamed, and only the requested vectors are kept. A word whose line is malformed counts as unknown.

    Args:
        path: A plain or .gz text file, or a .zip file with a member that ends with `{dimensions}d.txt`.
        words: The words to look up.
        dimensions: Length of the vectors.
        on_progress: Called with the number of bytes read and the total.

    Raises:
        DataError: The file cannot be read, contains none of the words, or more than 1% of their lines are malformed.
    """
    wanted = {word: number for number, word in enumerate(words)}
    vectors = np.zeros((len(words), dimensions), np.float32)
    found, problems = 0, list[str]()
    lines = read_lines(path, encoding="utf-8", member=f"{dimensions}d.txt", on_progress=on_progress)
    for number, line in enumerate(lines, 1):
        word, _, rest = line.partition(" ")
        if word in wanted:
            try:
                vectors[wanted[word]] = _parse_vector(rest, dimensions)
                found += 1
            except ValueError as error:
                problems.append(f"{path}: line {number}: {error}")
    if len(problems) > MAX_MALFORMED * (found + len(problems)):
        raise DataError(problems[0])
    if words and not found:
        raise DataError(f"{path}: contains none of the {len(words)} requested words; is it a GloVe text file?")
    return vectors


def check_glove(path: Path, *, dimensions: int = DIMENSIONS, on_progress: BytesCallback | None = None) -> None:
    """Read a whole file and raise a DataError if more than 1% of its lines are not a word and a vector.

    Args:
        path: The file, as for `read_glove`.
        dimensions: Length of the vectors.
        on_progress: Called with the number of bytes read and the total.
    """
    num_lines, num_malformed, first = 0, 0, ""
    for line in read_lines(path, encoding="utf-8", member=f"{dimensions}d.txt", on_progress=on_progress):
        num_lines += 1
        if line.count(" ") != dimensions:
            num_malformed += 1
            first = first or f" (first line {num_lines}: {line[:100].rstrip()})"
    if not num_lines or num_malformed > MAX_MALFORMED * num_lines:
        raise DataError(f"{path}: {num_malformed} of {num_lines} lines are not a word and {dimensions} numbers{first}")


def _parse_vector(text: str, dimensions: int) -> npt.NDArray[np.float32]:
    try:
        values = [float(part) for part in text.split()]
    except ValueError as error:
        raise ValueError(f"is not a word and its vector ({error})") from None
    with np.errstate(over="ignore"):
        vector = np.array(values, np.float32)
    if len(values) != dimensions or not np.isfinite(vector).all():
        raise ValueError(f"contains {len(values)} numbers, expected {dimensions} finite ones")
    return vector
