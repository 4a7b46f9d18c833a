"""What all tests share: the GPU that is there or not, and error bounds."""

import os

import pytest

import persistent_gemm as pg
from device import Driver

REQUIRE_GPU = os.environ.get("PGEMM_REQUIRE_GPU") == "1"


def missing(what):
    """Skips a test visibly, or fails it where a GPU is required."""
    if REQUIRE_GPU:
        pytest.fail(f"PGEMM_REQUIRE_GPU=1, and {what}")
    pytest.skip(what)


@pytest.fixture(scope="session")
def cuda():
    """torch, on a machine with a Hopper GPU."""
    try:
        import torch
    except ImportError:
        missing("there is no torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        missing("torch sees no Hopper GPU")
    return torch


@pytest.fixture(scope="session")
def gpu():
    """A Hopper GPU, or the emulated one."""
    try:
        pg.Runner("bf16", None, None, None, device=0)
    except pg.NoDeviceError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def driver(gpu):
    """The driver of such a GPU."""
    return Driver()
