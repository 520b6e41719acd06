"""The handwritten digits included in scikit-learn: 1797 images of 8 x 8 pixels, without a download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.bounded_reading import DECOMPRESSION_ERRORS, open_lines
from fedlatest.data.federation import Samples
from fedlatest.errors import DataError

TEST_SHARE = 0.2
MAX_BYTES = 2**24  # that come out of the file, which has 0.5 * 10^6


def load_digits() -> Samples:
    """Return the digits with pixels in [0, 1]; the first fifth of a fixed shuffle is the test set.

    >>> load_digits().features.shape
    (1438, 64)
    """
    images, labels = _read_digits()
    shuffled = np.random.default_rng(0).permutation(labels.size)
    num_test = round(TEST_SHARE * labels.size)
    test, train = shuffled[:num_test], shuffled[num_test:]
    pixels = (images / 16).astype(np.float32)
    return Samples("digits", pixels[train], labels[train].astype(np.int32), pixels[test], labels[test].astype(np.int32))


def _read_digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Read images and labels from scikit-learn's file without importing scikit-learn, which takes over a second."""
    spec = find_spec("sklearn")
    file = Path((spec and spec.origin) or "").parent / "datasets" / "data" / "digits.csv.gz"
    if not file.is_file():  # other versions may store it elsewhere
        from sklearn.datasets import load_digits as load_with_sklearn

        images, labels = load_with_sklearn(return_X_y=True)
        return images, labels
    try:
        with open_lines(file, encoding="ascii", limit=MAX_BYTES) as lines:
            table = np.loadtxt(lines, delimiter=",")
    except (*DECOMPRESSION_ERRORS, ValueError) as error:
        raise DataError(f"{file}: cannot be read; install scikit-learn again ({error})") from error
    return table[:, :-1], table[:, -1].astype(np.int64)
