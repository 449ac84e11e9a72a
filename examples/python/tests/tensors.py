# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Small tensors for the tests of DLPack, made with ctypes: in host memory, and in that of a GPU."""

import ctypes
import os

import numpy as np

CPU, CUDA = 1, 2  # DLPack's types of devices


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("number", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("dimensions", ctypes.c_int32),
        ("type", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", _Deleter)]

_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_FRESH, _TAKEN = b"dltensor", b"used_dltensor"  # names are kept, not copied

_handed_over = {}  # address of a _Managed: the structure, its arrays, and its tensor


@_Deleter
def _let_go(managed):
    *_, tensor = _handed_over.pop(ctypes.addressof(managed.contents))
    tensor.held -= 1


class Tensor:
    """Memory that is handed over by DLPack, and in no other way."""

    def __init__(self, address, shape, device=(CPU, 0), strides=None, type=(1, 8), offset=0):
        self.address, self.shape, self.device = address, tuple(shape), device
        self.strides, self.type, self.offset = strides, type, offset
        self.held = 0  # how many others hold its memory now
        self.streams = []  # which others have named

    @property
    def ndim(self):
        return len(self.shape)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        lengths = (ctypes.c_int64 * self.ndim)(*self.shape)
        strides = (ctypes.c_int64 * self.ndim)(*self.strides) if self.strides else None
        tensor = _Tensor(
            self.address, _Device(*self.device), self.ndim, _DataType(*self.type, 1), lengths,
            strides, self.offset,
        )  # fmt: skip
        managed = _Managed(tensor, None, _let_go)
        _handed_over[ctypes.addressof(managed)] = (managed, lengths, strides, self)
        self.held += 1
        return _python.PyCapsule_New(ctypes.addressof(managed), _FRESH, None)


def of_array(array):
    """A tensor in the memory of `array`, which must live as long as it is used."""
    strides = [step // array.itemsize for step in array.strides]
    return Tensor(array.ctypes.data, array.shape, strides=strides)


class Taken:
    """What an object hands over by DLPack, until `let_go`."""

    def __init__(self, given, **wishes):
        capsule = given.__dlpack__(**wishes)
        self.managed = _Managed.from_address(_python.PyCapsule_GetPointer(capsule, _FRESH))
        _python.PyCapsule_SetName(capsule, _TAKEN)
        tensor = self.managed.tensor
        self.address = tensor.data + tensor.byte_offset
        self.device = (tensor.device.type, tensor.device.number)
        self.shape = tuple(tensor.shape[: tensor.dimensions])
        self.type = (tensor.type.code, tensor.type.bits, tensor.type.lanes)
        self.whole = not tensor.strides

    def let_go(self):
        self.managed.deleter(ctypes.pointer(self.managed))


class _EmulatedGpu:
    """The emulated device's memory, which is the host's."""

    def __init__(self, library):
        self.library = ctypes.CDLL(library)
        self.library.pvm_emulated_take.restype = ctypes.c_void_p
        self.library.pvm_emulated_take.argtypes = [ctypes.c_size_t]

    def take(self, count):
        return self.library.pvm_emulated_take(count)

    def write(self, address, array):
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def read(self, array, address):
        ctypes.memmove(array.ctypes.data, address, array.nbytes)


class _Gpu:
    """The first GPU's memory, by the functions of its driver."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        if (fault := getattr(self.driver, name)(*arguments)) != 0:
            raise OSError(f"{name} returned {fault}")

    def take(self, count):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count))
        return address.value

    def write(self, address, array):
        to, count = ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes)
        self.call("cuMemcpyHtoD_v2", to, ctypes.c_void_p(array.ctypes.data), count)

    def read(self, array, address):
        to, count = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self.call("cuMemcpyDtoH_v2", to, ctypes.c_uint64(address), count)


def find_gpu():
    """The memory of a GPU; None if there is none."""
    if library := os.environ.get("PVM_EMULATED_GPU"):
        return _EmulatedGpu(library)
    try:
        return _Gpu()
    except OSError:
        return None


def on_gpu(gpu, array, **options):
    """A copy of `array` in the GPU's memory. It is never freed: tests are short."""
    array = np.ascontiguousarray(array)
    address = gpu.take(array.nbytes)
    gpu.write(address, array)
    return Tensor(address, array.shape, (CUDA, 0), **options)


def to_host(gpu, taken):
    """A copy of floats in the GPU's memory, on the host."""
    array = np.empty(taken.shape, np.float32)
    gpu.read(array, taken.address)
    return array
