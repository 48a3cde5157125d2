"""Element types by ONNX's names, and what tensors take."""

from onnx import TensorProto

# Names of element types: ONNX's own in lower case, except that the two C names say their width.
_DTYPES = {number: name.lower() for name, number in TensorProto.DataType.items()}
_DTYPES |= {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}

_BITS = {  # per value; strings count nothing
    **dict.fromkeys(("uint2", "int2"), 2),
    **dict.fromkeys(("uint4", "int4", "float4e2m1"), 4),
    **dict.fromkeys(("float6e2m3", "float6e3m2"), 6),
    **dict.fromkeys(("int8", "uint8", "bool", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"), 8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("int32", "uint32", "float32"), 32),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 64),
    "float8e8m0": 8,
    "complex128": 128,
}


def dtype_name(number: int) -> str:
    return str(_DTYPES.get(number, f"unknown_{number}"))


def bytes_of(count: int, dtype: str) -> int:
    """Bytes of `count` values, packed as ONNX packs them."""
    return (count * _BITS.get(dtype, 0) + 7) // 8


def declared_bytes(tensor: TensorProto) -> int:
    """Bytes of the values that a stored tensor says it has."""
    count = 1
    for extent in tensor.dims:
        count *= extent
    return bytes_of(count, dtype_name(tensor.data_type))
