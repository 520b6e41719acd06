"""8-bit pixels as numbers in [0, 1]."""

import numpy as np
import numpy.typing as npt

STEP = np.float32(1) / np.float32(255)


def pixels(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Bytes times 1/255: a product, so that the simulator can keep the bytes and make the same numbers again.

    >>> pixels(np.array([0, 51, 255], np.uint8)).round(6).tolist() == np.float32([0, 0.2, 1]).tolist()
    True
    """
    return images.astype(np.float32) * STEP
