"""What tests share: the pocket pair, SmolLM2 where it has been fetched, closed pictures, and Ctrl-C in child processes.

Our own. A shell starts background commands with SIGINT ignored, and a child inherits that; a handler it does not.
Left out: fixtures of one file, which stand there.
"""

import signal

import matplotlib.pyplot as plt
import pytest
from hypothesis import settings

from specdec_lib import smollm2

plt.switch_backend("agg")
settings.register_profile("course", deadline=None)  # a busy machine is no failure
settings.load_profile("course")
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_smollm2():
    """The folder of SmolLM2-135M-Instruct; the test is skipped where it has not been fetched."""
    if not smollm2.is_there():
        pytest.skip("SmolLM2 is not in the cache: make smollm2")
    return smollm2.model_folder()


@pytest.fixture(scope="session")
def pair():
    """The pocket pair. Its caches are whatever the last test left; a text begins with an empty one."""
    from specdec_lib.zoo import load_pair

    return load_pair("pocket")


@pytest.fixture(autouse=True)
def closed_pictures():
    """No test sees a picture that an earlier one drew."""
    yield
    plt.close("all")
