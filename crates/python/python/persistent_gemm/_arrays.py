"""Allocates results as arrays of the caller's library. PyTorch tensors are allocated elsewhere."""

from persistent_gemm._errors import ArgumentError, DtypeError

_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def _dtype(name):
    import numpy

    if name not in _OF_ML_DTYPES:
        return numpy.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise DtypeError(
            f"numpy has no {name} for the result: install ml_dtypes, or give another out_dtype, such as 'f32'"
        ) from None
    return numpy.dtype(getattr(ml_dtypes, name))


def empty(like, shape, dtype, by_columns, ordinal):
    """Returns an uninitialised array of the library of `like`.

    The array is on the CUDA device `ordinal`, or on the CPU if `ordinal` is None. It is column-major
    if `by_columns` is set.
    """
    order = "F" if by_columns else "C"
    library = type(like).__module__.partition(".")[0]
    if library in ("jax", "jaxlib"):
        return _empty_of_jax(like, shape, dtype, by_columns)
    if library == "cupy":
        import cupy

        with cupy.cuda.Device(ordinal):
            return cupy.empty(shape, _dtype(dtype), order=order)
    if ordinal is None and hasattr(like, "__array_interface__"):
        import numpy

        return numpy.empty(shape, _dtype(dtype), order=order)
    raise ArgumentError(
        f"results in the library of {type(like)} are not known: give out, an array of shape {tuple(shape)} and type {dtype}"
    )


def _empty_of_jax(like, shape, dtype, by_columns):
    if by_columns:
        raise ArgumentError(
            "c can only be added to a column-major result, and JAX has none: make c row-major, or leave it out and add it"
        )
    import jax

    # The array is returned only after the result is written to it. Callers therefore see an
    # immutable array, as JAX requires.
    with jax.default_device(next(iter(like.devices()))):
        return jax.block_until_ready(jax.numpy.empty(shape, _dtype(dtype)))
