"""``matmul`` and ``linear`` as PyTorch operators with gradients.

Importing this module registers ``torch.ops.persistent_gemm.matmul`` and
``torch.ops.persistent_gemm.linear``. The operators support torch.compile, CUDA graphs, and every
other feature that uses PyTorch's dispatcher.

``persistent_gemm.matmul`` and ``persistent_gemm.linear`` use these operators automatically if
gradients are recorded or if a tensor belongs to a subclass of torch.Tensor. Once this module is
imported, functions that torch.compile compiles use them too.
"""

import math

import torch

from persistent_gemm import _core
from persistent_gemm._errors import ArgumentError, DtypeError

__all__ = ["linear", "matmul"]

_LIBRARY = torch.library.Library("persistent_gemm", "DEF")
_COMMON = "str? epilogue=None, str? dtype=None, str? precision=None, ScalarType? out_dtype=None"
# Operands are read in place, so compiled code must pass tensors with the strides that were traced.
_STRIDES = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
_TAGS = (torch.Tag.pt2_compliant_tag, _STRIDES)
_LIBRARY.define(
    f"matmul(Tensor a, Tensor b, Tensor? c=None, Tensor? bias=None, float alpha=1.0, float beta=0.0, {_COMMON}) -> Tensor",
    tags=_TAGS,
)
_LIBRARY.define(f"linear(Tensor x, Tensor weight, Tensor? bias=None, {_COMMON}) -> Tensor", tags=_TAGS)

_NAMES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "tf32": torch.float32,
    "f64": torch.float64,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "s8": torch.int8,
    "u8": torch.uint8,
    "s32": torch.int32,
}
_INTEGERS = (torch.int8, torch.uint8)
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def _matmul(a, b, c=None, bias=None, alpha=1.0, beta=0.0, epilogue=None, dtype=None, precision=None, out_dtype=None):
    return _core.compute(a, b, False, None, c, bias, alpha, beta, epilogue, dtype, precision, out_dtype)


def _linear(x, weight, bias=None, epilogue=None, dtype=None, precision=None, out_dtype=None):
    return _core.compute(x, weight, True, None, None, bias, 1.0, 0.0, epilogue, dtype, precision, out_dtype)


for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("matmul", _matmul, _key)
    _LIBRARY.impl("linear", _linear, _key)


def _result_dtype(a, dtype, out_dtype):
    if out_dtype is not None:
        return out_dtype
    operand = a.dtype if dtype is None else _NAMES.get(dtype) or getattr(torch, dtype, a.dtype)
    if operand in _INTEGERS:
        return torch.int32
    return torch.bfloat16 if operand in _FLOAT8 else operand


@torch.library.register_fake("persistent_gemm::matmul")
def _(a, b, c=None, bias=None, alpha=1.0, beta=0.0, epilogue=None, dtype=None, precision=None, out_dtype=None):
    # torch.matmul determines the shape of the result, and reports shapes that do not match. The
    # type of the result follows other rules. No values are computed.
    shape = torch.matmul(a.to(torch.float32), b.to(torch.float32)).shape
    result = a.new_empty(shape, dtype=_result_dtype(a, dtype, out_dtype))
    if c is not None and beta != 0.0 and _is_by_columns(c, shape):
        return result.mT.contiguous().mT
    return result


@torch.library.register_fake("persistent_gemm::linear")
def _(x, weight, bias=None, epilogue=None, dtype=None, precision=None, out_dtype=None):
    torch._check(weight.dim() == 2, lambda: f"weight is of shape {tuple(weight.shape)}, and a matrix is needed")
    torch._check(x.shape[-1] == weight.shape[-1], lambda: f"x is of shape {tuple(x.shape)}, weight of {tuple(weight.shape)}")
    shape = (*x.shape[:-1], weight.shape[0])
    return x.new_empty(shape, dtype=_result_dtype(x, dtype, out_dtype))


def _is_by_columns(c, shape):
    """Returns whether C can only be added to a column-major result."""
    if len(shape) < 2 or shape[-1] == 1 or shape[-2] == 1:
        return False
    rows, columns = c.expand(shape).stride()[-2:]
    return columns != 1 and rows == 1


def _of_silu(z):
    sigmoid = torch.sigmoid(z)
    return sigmoid * (1 + z * (1 - sigmoid))


def _of_gelu(z):
    return (1 + torch.erf(z * math.sqrt(0.5))) / 2 + z * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def _of_gelu_tanh(z):
    scale = math.sqrt(2 / math.pi)
    tanh = torch.tanh(scale * (z + 0.044715 * z * z * z))
    return (1 + tanh + z * (1 - tanh * tanh) * scale * (1 + 3 * 0.044715 * z * z)) / 2


def _of_sigmoid(z):
    sigmoid = torch.sigmoid(z)
    return sigmoid * (1 - sigmoid)


# The derivative of each activation in _core.ACTIVATIONS. The derivatives consist of differentiable
# functions. The parameters of an activation are arguments after z.
_DERIVATIVES = {
    "relu": lambda z: (z > 0).to(z.dtype),
    "gelu": _of_gelu,
    "gelu_tanh": _of_gelu_tanh,
    "silu": _of_silu,
    "sigmoid": _of_sigmoid,
    "tanh": lambda z: 1 - torch.tanh(z).square(),
    "clamp": lambda z, lower, upper: ((z >= lower) & (z <= upper)).to(z.dtype),
}


def _activation(epilogue):
    """Returns the name and the parameters of an epilogue's activation, or None without one."""
    last = epilogue.split("|")[-1] if epilogue else ""
    name, _, given = last.strip().removesuffix(")").partition("(")
    if name.strip() not in _core.ACTIVATIONS:
        return None
    return name.strip(), [float(number) for number in given.split(",")] if given else []


def _without_activation(epilogue):
    first = epilogue.split("|")[0].strip() if epilogue else ""
    return first if first in ("bias_n", "bias_m") else None


def _check_types(*tensors):
    for tensor in tensors:
        if tensor.dtype in (*_INTEGERS, *_FLOAT8):
            raise DtypeError(f"there are no gradients for operands of {tensor.dtype}: detach() them, or use torch.no_grad()")


def _before_activation(ctx, grad, again):
    """Returns the gradient of the activation's input.

    `again` computes this input again, in f64 if the operands are f64, and in f32 otherwise.
    """
    activation = _activation(ctx.epilogue)
    if activation is None:
        return grad
    z = again()
    name, parameters = activation
    return grad.to(z.dtype) * _DERIVATIVES[name](z, *parameters)


def _product(a, b, like, ctx):
    """Returns the gradient of the operand `like` as the product of `a` and `b`.

    The product has the type and the precision of this operand.
    """
    precision = ctx.precision if like.dtype == torch.float32 or ctx.precision == "f16" else None
    return matmul(a.to(like.dtype), b.to(like.dtype), dtype=ctx.dtype, precision=precision, out_dtype=like.dtype)


def _setup_matmul(ctx, inputs, output):
    a, b, c, bias, ctx.alpha, ctx.beta, *others = inputs
    _setup(ctx, a, b, c, bias, others)


def _setup_linear(ctx, inputs, output):
    x, weight, bias, *others = inputs
    _setup(ctx, x, weight, None, bias, others)


def _setup(ctx, a, b, c, bias, others):
    _check_types(a, b)
    ctx.epilogue, ctx.dtype, ctx.precision, _ = others
    again = _activation(ctx.epilogue) is not None
    ctx.save_for_backward(a, b, c if again else None, bias if again else None)
    ctx.c_like = None if c is None else (c.shape, c.dtype)
    ctx.bias_like = None if bias is None else (bias.shape, bias.dtype)
    ctx.vectors = a.dim() == 1, b.dim() == 1


def _wide(dtype):
    """Returns the type in which the input of an activation is computed again."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _bias_gradient(ctx, z):
    if ctx.bias_like is None:
        return None
    shape, dtype = ctx.bias_like
    row_vanished, column_vanished = ctx.vectors
    if _without_activation(ctx.epilogue) == "bias_m":
        along = None if row_vanished else z.dim() - (1 if column_vanished else 2)
    else:
        along = None if column_vanished else z.dim() - 1
    others = [dimension for dimension in range(z.dim()) if dimension != along]
    # torch sums over all dimensions if the list of dimensions is empty.
    return (z.sum(others) if others else z).reshape(shape).to(dtype)


def _backward_matmul(ctx, grad):
    a, b, c, bias = ctx.saved_tensors

    def again():
        epilogue, wide = _without_activation(ctx.epilogue), _wide(a.dtype)
        # C and the bias have the type of the result.
        c_wide, bias_wide = (None if array is None else array.to(wide) for array in (c, bias))
        return matmul(a, b, c=c_wide, alpha=ctx.alpha, beta=ctx.beta, bias=bias_wide, epilogue=epilogue,
                      dtype=ctx.dtype, precision=ctx.precision, out_dtype=wide)

    z = _before_activation(ctx, grad, again)
    of_a = of_b = of_c = None
    scaled = z if ctx.alpha == 1.0 else z * ctx.alpha
    # A vector becomes a matrix with one row or one column.
    if b.dim() == 1:
        scaled = scaled.unsqueeze(-1)
    if a.dim() == 1:
        scaled = scaled.unsqueeze(-2)
    a_matrix = a.unsqueeze(0) if a.dim() == 1 else a
    b_matrix = b.unsqueeze(1) if b.dim() == 1 else b
    if ctx.needs_input_grad[0]:
        of_a = _product(scaled, b_matrix.mT, a, ctx).sum_to_size(a_matrix.shape).reshape(a.shape)
    if ctx.needs_input_grad[1]:
        of_b = _product(a_matrix.mT, scaled, b, ctx).sum_to_size(b_matrix.shape).reshape(b.shape)
    if ctx.c_like is not None and ctx.needs_input_grad[2]:
        shape, dtype = ctx.c_like
        of_c = (z * ctx.beta).sum_to_size(shape).to(dtype)
    return of_a, of_b, of_c, _bias_gradient(ctx, z), None, None, None, None, None, None


def _backward_linear(ctx, grad):
    x, weight, _, bias = ctx.saved_tensors

    def again():
        wide = _wide(x.dtype)
        return linear(x, weight, None if bias is None else bias.to(wide), _without_activation(ctx.epilogue),
                      dtype=ctx.dtype, precision=ctx.precision, out_dtype=wide)

    z = _before_activation(ctx, grad, again)
    of_x = of_weight = None
    if ctx.needs_input_grad[0]:
        of_x = _product(z, weight, x, ctx).reshape(x.shape)
    if ctx.needs_input_grad[1]:
        rows = z.reshape(-1, weight.shape[0])
        of_weight = _product(rows.mT, x.reshape(-1, weight.shape[1]), weight, ctx)
    return of_x, of_weight, _bias_gradient(ctx, z), None, None, None, None


torch.library.register_autograd("persistent_gemm::matmul", _backward_matmul, setup_context=_setup_matmul, lib=_LIBRARY)
torch.library.register_autograd("persistent_gemm::linear", _backward_linear, setup_context=_setup_linear, lib=_LIBRARY)


def _name(dtype):
    """Returns the name of a type in the form that the operators accept."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    return str(dtype).removeprefix("torch.")


def _torch_dtype(dtype):
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    known = _NAMES.get(dtype) if isinstance(dtype, str) else None
    if known is None and isinstance(dtype, str):
        known = getattr(torch, dtype, None)
    if isinstance(known, torch.dtype):
        return known
    raise DtypeError(f"out_dtype is {dtype!r}: use one of {', '.join(_NAMES)}, or a torch.dtype")


def matmul(a, b, out=None, c=None, alpha=1.0, beta=0.0, epilogue=None, *, bias=None, dtype=None, precision=None,
           out_dtype=None, stream=None):
    """Calls persistent_gemm.matmul through PyTorch's dispatcher.

    The call records gradients, and functions that torch.compile compiles can contain it.
    """
    if stream is not None:
        raise ArgumentError("stream does not go with torch's operators: use torch.cuda.stream(...)")
    if bias is not None and _without_activation(epilogue) is None:
        epilogue = f"bias_n|{epilogue}" if epilogue else "bias_n"
    result = torch.ops.persistent_gemm.matmul(
        a, b, c, bias, alpha, beta, epilogue, _name(dtype), precision, _torch_dtype(out_dtype)
    )
    return result if out is None else out.copy_(result)


def linear(x, weight, bias=None, epilogue=None, *, out=None, dtype=None, precision=None, out_dtype=None, stream=None):
    """Calls persistent_gemm.linear through PyTorch's dispatcher, as matmul does."""
    if stream is not None:
        raise ArgumentError("stream does not go with torch's operators: use torch.cuda.stream(...)")
    if bias is not None and _without_activation(epilogue) is None:
        epilogue = f"bias_n|{epilogue}" if epilogue else "bias_n"
    result = torch.ops.persistent_gemm.linear(
        x, weight, bias, epilogue, _name(dtype), precision, _torch_dtype(out_dtype)
    )
    return result if out is None else out.copy_(result)


def _dispatch_matmul(a, b, **keywords):
    return matmul(a, b, **keywords)


def _dispatch_linear(x, weight, *, c=None, alpha=1.0, beta=0.0, **keywords):
    return linear(x, weight, **keywords)


# In functions that torch.compile compiles, these operators replace the compiled functions.
torch.compiler.substitute_in_graph(_core.matmul, skip_signature_check=True)(matmul)
torch.compiler.substitute_in_graph(_core.linear, skip_signature_check=True)(linear)
