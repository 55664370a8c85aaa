"""What the generators of this package draw from: dims, axes, attributes and values of any dtype, all from one seeded stream.

A generator is a function of a Draw that returns a Case: one node with its inputs. It is registered with the operators that it is for.
"""
import dataclasses
import functools
import typing

import ml_dtypes
import numpy
import onnx

_LEFT_OUT = ("(string)", "(complex64)", "(complex128)", "(float6e2m3)", "(float6e3m2)")
_ONNX_NAMES = {"float": "float32", "double": "float64"}
FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
LETTERS = (*"abcdABC 019,.-_", "é", "Ü", "ж", "漢", "😀")
SPECIALS = (numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0)

GENERATORS = {}  # (domain, name) -> generator


def numpy_dtype(name):
    """numpy's dtype of ONNX's name for one."""
    names = {"float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2": "float8_e5m2",
             "float8e5m2fnuz": "float8_e5m2fnuz", "float8e8m0": "float8_e8m0fnu", "float4e2m1": "float4_e2m1fn"}
    name = names.get(name, name)
    return numpy.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else numpy.dtype(name)


def onnx_type(dtype):
    """TensorProto's number of a numpy dtype."""
    return onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))


def operator(*names, domain=""):
    """Registers a generator for these operators."""
    def register(function):
        for name in names:
            GENERATORS[domain, name] = function
        return function
    return register


def in_half_too(generator):
    """Of a generator that draws float32, some cases in half precision: all inputs of float32 in the same other type. Not graphs, which round
    between their nodes, and not what is quantized, where numbers of few bits lie half-way between two steps."""
    @functools.wraps(generator)
    def drawn(draw):
        case = generator(draw)
        if not draw.maybe(0.3) or case.nodes is not None or "k_quant_type" in case.attributes:
            return case
        dtype = numpy_dtype(draw.one("float16", "bfloat16"))
        return dataclasses.replace(case, inputs=[x.astype(dtype) if x is not None and x.dtype == "float32" else x for x in case.inputs])
    return drawn


@dataclasses.dataclass
class Case:
    """One node. `inputs` are arrays, or None where an optional one is not given; those in `constant` become initializers."""

    op: str
    domain: str
    opset: int
    inputs: list
    attributes: dict
    outputs: int = 1
    constant: set = dataclasses.field(default_factory=set)
    open_dims: bool = False
    tolerance: typing.Optional[tuple] = None  # (rtol, atol) instead of that of the dtype
    # Where it takes more than one node, or one with bodies: nodes(prefix, inputs, outputs) makes them, from the names of the inputs and
    # outputs; other names begin with `prefix`. `attributes` then only describe the case.
    nodes: typing.Optional[typing.Callable] = None
    check: typing.Optional[typing.Callable] = None  # instead of the judges: says of the outputs what is wrong with them, or ""

    def describe(self):
        inputs = ", ".join(map(_brief, self.inputs))
        attributes = " ".join(f"{key}={_values(value)}" for key, value in self.attributes.items())
        return f"{self.domain + '.' if self.domain else ''}{self.op}-{self.opset}({inputs}) {attributes}".strip()


def _values(attribute):
    return onnx.numpy_helper.to_array(attribute).tolist() if isinstance(attribute, onnx.TensorProto) else attribute


def _brief(x):
    """An input in few characters; small ones with their values."""
    if x is None:
        return "-"
    return f"{x.dtype}{list(x.shape)}" + (f"={x.tolist()}" if x.size <= 8 and x.dtype.kind in "ib" or x.size == 1 else "")


@functools.lru_cache(maxsize=None)
def types_of(domain, name, opset, index, output=False):
    """The dtypes that ONNX allows for an input, by their names."""
    schema = onnx.defs.get_schema(name, opset, domain)
    formal = schema.outputs if output else schema.inputs
    types = [t[7:-1] for t in formal[min(index, len(formal) - 1)].types if t.startswith("tensor(") and not t.endswith(_LEFT_OUT)]
    return tuple(sorted(_ONNX_NAMES.get(t, t) for t in types))


class Draw:
    """Draws one case of an operator at an opset version. `dtypes`: of input 0, those that the library takes."""

    def __init__(self, rng, domain, name, opset, dtypes):
        self.rng, self.domain, self.op, self.opset, self._dtypes = rng, domain, name, opset, dtypes

    # ------------------------------------------------------------------------------------------------ plain choices

    def int(self, low, high):
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def real(self, low, high):
        """A number that float32 has."""
        return float(numpy.float32(self.rng.uniform(low, high)))

    def one(self, *choices):
        return choices[self.int(0, len(choices) - 1)]

    def maybe(self, chance=0.5):
        return self.rng.random() < chance

    def some(self, **attributes):
        """Each of the attributes given or left out."""
        return {key: value for key, value in attributes.items() if self.maybe()}

    def dtype(self, *among, index=0):
        """A dtype that ONNX allows for input `index` (at 0 also the library), and that is `among` those named, if any."""
        allowed = types_of(self.domain, self.op, self.opset, index)
        allowed = [t for t in allowed if (index != 0 or t in self._dtypes) and (not among or t in among)]
        if not allowed:
            raise LookupError(f"{self.op}-{self.opset}: no dtype among {among}")
        if "float32" in allowed and self.maybe(0.3):  # what models have most
            return "float32"
        return allowed[self.int(0, len(allowed) - 1)]

    # ------------------------------------------------------------------------------------------------------- shapes

    def dim(self, low=1, high=5, zero=0.03, one=0.15):
        return 0 if self.maybe(zero) else 1 if self.maybe(one) else self.int(low, high)

    def shape(self, low_rank=0, high_rank=4, low=1, high=5, zero=0.03):
        return tuple(self.dim(low, high, zero) for _ in range(self.int(low_rank, high_rank)))

    def broadcast_to(self, shape):
        """A shape that broadcasts to this one, of the same rank or less."""
        dropped = self.int(0, len(shape)) if self.maybe(0.4) else 0
        return tuple(1 if self.maybe(0.25) else d for d in shape[dropped:])

    def broadcasting(self, count, high_rank=4):
        """Shapes that broadcast with each other."""
        whole = self.shape(0, high_rank)
        return [self.broadcast_to(whole) if self.maybe(0.6) else whole for _ in range(count)]

    def axis(self, rank, extra=0):
        """From -rank to rank - 1; with `extra` for a rank that is so much larger."""
        return self.int(-(rank + extra), rank + extra - 1)

    def axes(self, rank, low=0):
        """Different axes, some counted from the end."""
        chosen = self.rng.permutation(rank)[:self.int(min(low, rank), rank)]
        return [int(a) - (rank if self.maybe(0.4) else 0) for a in chosen]

    # ------------------------------------------------------------------------------------------------------- values

    def floats(self, shape, dtype, low, high, wild):
        x = self.rng.uniform(low, high, shape)
        if wild and self.maybe(0.25):
            x = x * 10.0 ** self.rng.integers(-12, 12, shape)
        if wild and self.maybe(0.25):
            x = numpy.where(self.rng.random(shape) < 0.3, self.rng.choice(SPECIALS, shape), x)
        with numpy.errstate(all="ignore"):
            return x.astype(dtype)

    def values(self, shape, dtype="float32", low=-3, high=3, wild=False):
        """An array. Integers are drawn from low to high; `wild` may bring the dtype's extremes, NaN and infinities instead."""
        shape, dtype = tuple(shape), numpy_dtype(dtype) if isinstance(dtype, str) else numpy.dtype(dtype)
        if dtype == bool:
            return self.rng.random(shape) < 0.5
        if dtype.kind in "iu":
            info = numpy.iinfo(dtype)
            if wild and self.maybe(0.3):
                return self.rng.integers(info.min, info.max, shape, dtype, endpoint=True)
            low, high = max(int(low), info.min), min(int(high), info.max)
            return self.rng.integers(min(low, high), high, shape, endpoint=True).astype(dtype)
        if dtype.name in ("int4", "uint4", "int2", "uint2"):
            info = ml_dtypes.iinfo(dtype)
            return self.rng.integers(info.min, info.max, shape, endpoint=True).astype("int8").astype(dtype)
        return numpy.asarray(self.floats(shape, dtype, low, high, wild)).astype(dtype)

    def spread(self, shape, dtype):
        """Values of which no two are close, in any order: a variance that does not vanish."""
        count = int(numpy.prod(shape))
        return numpy.asarray(self.rng.permutation(count).reshape(shape) * (6 / max(count, 1)) - 2.9).astype(numpy_dtype(dtype))

    def strings(self, shape, *pool):
        """Of the pool, or of letters of one to four bytes."""
        count = int(numpy.prod(shape))
        words = [self.one(*pool) if pool else "".join(self.one(*LETTERS) for _ in range(self.int(0, 5))) for _ in range(count)]
        array = numpy.empty(count, object)
        array[:] = words
        return array.reshape(tuple(shape))

    def graph(self, inputs, nodes, attributes=None, outputs=1, **more):
        """A case of `nodes` (see Case)."""
        return dataclasses.replace(self.case(inputs, attributes, outputs), nodes=nodes, **more)

    def indices(self, shape, size, dtype="int64", negative=True):
        """Indices of an axis."""
        return self.rng.integers(-size if negative else 0, max(size, 1), shape).astype(dtype)

    # --------------------------------------------------------------------------------------------------------- case

    def case(self, inputs, attributes=None, outputs=1, constant=(), tolerance=None):
        """The node. Inputs not in `constant` may become initializers too."""
        inputs = [None if x is None else numpy.asarray(x) for x in inputs]
        fixed = set(constant)
        if self.maybe(0.25):
            fixed |= {i for i in range(1, len(inputs)) if inputs[i] is not None and self.maybe()}
        return Case(self.op, self.domain, self.opset, inputs, dict(attributes or {}), outputs, fixed, self.maybe(0.4), tolerance)
