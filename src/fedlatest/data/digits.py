"""scikit-learn's bundled handwritten digits: 1797 images of 8 x 8 pixels, no download."""

import numpy as np

from fedlatest.data.samples import Samples

TEST_SHARE = 0.2


def load_digits() -> Samples:
    """The digits with pixels in [0, 1]; the first fifth of a fixed shuffle is the test set.

    >>> load_digits().features.shape
    (1438, 64)
    """
    from sklearn.datasets import load_digits as bundled  # slow to import, and only this needs it

    images, labels = bundled(return_X_y=True)
    shuffled = np.random.default_rng(0).permutation(labels.size)
    num_test = round(TEST_SHARE * labels.size)
    test, train = shuffled[:num_test], shuffled[num_test:]
    pixels = (images / 16).astype(np.float32)
    return Samples("digits", pixels[train], labels[train].astype(np.int32), pixels[test], labels[test].astype(np.int32))
