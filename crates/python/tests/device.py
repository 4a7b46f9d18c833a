"""Arrays in the memory of a CUDA device that need no other library: the driver is called by ctypes. Tests with them run on a
Hopper GPU, and on the emulated device where its library is found as libcuda."""

import ctypes

import numpy as np


class Driver:
    """The context of device 0, which is made current on this thread."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.check("cuInit", 0)
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.check("cuCtxSetCurrent", context)

    def check(self, function, *arguments):
        code = getattr(self.cuda, function)(*arguments)
        assert code == 0, f"{function} returns {code}"

    def stream(self):
        stream = ctypes.c_void_p()
        self.check("cuStreamCreate", ctypes.byref(stream), 1)
        return stream.value

    def synchronize(self):
        self.check("cuCtxSynchronize")


class DeviceArray:
    """A copy of a numpy array, gaps between its lines included: its memory is that of `array`'s base."""

    def __init__(self, driver, array, *, read_only=False, stream=None):
        base = array if array.base is None else array.base
        self.driver, self.host, self.base = driver, array, np.ascontiguousarray(base)
        self.dtype, self.stream, self.read_only = array.dtype, stream, read_only
        self.offset = array.ctypes.data - base.ctypes.data
        self.memory = ctypes.c_uint64()
        driver.check("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(max(base.nbytes, 1)))
        place = base.ctypes.data_as(ctypes.c_void_p)
        driver.check("cuMemcpyHtoD_v2", self.memory, place, ctypes.c_size_t(base.nbytes))

    @property
    def address(self):
        return self.memory.value + self.offset

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3,
            "shape": self.host.shape,
            "strides": self.host.strides,
            "typestr": self.host.dtype.str,
            "data": (self.address, self.read_only),
            "stream": self.stream,
        }

    def whole(self):
        """The memory on the device, as bytes."""
        self.driver.synchronize()
        found = np.empty(self.base.nbytes, np.uint8)
        place = found.ctypes.data_as(ctypes.c_void_p)
        self.driver.check("cuMemcpyDtoH_v2", place, self.memory, ctypes.c_size_t(found.nbytes))
        return found

    def get(self):
        """What the device has in place of the array."""
        shape, strides = self.host.shape, self.host.strides
        return np.ndarray(shape, self.host.dtype, self.whole(), self.offset, strides).copy()

    def __del__(self):
        self.driver.cuda.cuMemFree_v2(self.memory)
