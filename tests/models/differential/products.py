"""Matrix products and sums of products."""
import numpy

from .draw import operator


def sizes(draw):
    """Of a product: mostly less than a block, now and then more."""
    return (draw.int(8, 70) if draw.maybe(0.15) else draw.dim(high=7) for _ in range(3))


@operator("MatMul")
def matmul(draw):
    m, k, n = sizes(draw)
    a, b = draw.broadcasting(2, 2)
    a, b = [*a, m, k], [*b, k, n]
    if draw.maybe(0.15):
        a = [k]
    elif draw.maybe(0.15):
        b = [k]
    dtype = draw.dtype()
    return draw.case([draw.values(a, dtype, wild=True), draw.values(b, dtype)])


@operator("Gemm")
def gemm(draw):
    (m, k, n), dtype = sizes(draw), draw.dtype()
    attributes = draw.some(transA=draw.int(0, 1), transB=draw.int(0, 1))
    if "int" not in dtype:
        attributes.update(draw.some(alpha=draw.real(-2, 2), beta=draw.real(-2, 2)))
    a = (k, m) if attributes.get("transA") else (m, k)
    b = (n, k) if attributes.get("transB") else (k, n)
    c = draw.one((m, n), (n,), (1, n), (m, 1), (1,), ())
    inputs = [draw.values(a, dtype, wild="int" not in dtype), draw.values(b, dtype), draw.values(c, dtype)]
    return draw.case(inputs[:2] if draw.opset >= 11 and draw.maybe(0.3) else inputs, attributes)


@operator("Einsum")
def einsum(draw):
    dims = {letter: draw.dim(zero=0) for letter in "bijk"}
    equation = draw.one("ij,jk->ik", "bij,bjk->bik", "bij,bjk", "ij->ji", "ij->", "ii->i", "i,i->", "i,j->ij", "ij,ij->ij", "bij,jk->bik", "bij->b", "ij->j",
                        "...ij,...jk->...ik", "bij->b i j", "ij,jk,k->i")
    dtype = draw.dtype()
    terms = [term.replace(" ", "") for term in equation.split("->")[0].split(",")]
    lead = [draw.int(1, 3) for _ in range(draw.int(0, 2))]
    shapes = [(lead if "..." in term else []) + [dims[letter] for letter in term.replace("...", "")] for term in terms]
    return draw.case([draw.values(shape, dtype, -3, 3) for shape in shapes], {"equation": equation})


@operator("Det")
def det(draw):
    n = draw.int(1, 5)
    return draw.case([draw.values((*draw.shape(0, 2), n, n), draw.dtype())], tolerance=(1e-3, 1e-4))


@operator("MatMulInteger")
def matmul_integer(draw):
    m, k, n = draw.dim(high=7), draw.dim(high=7, zero=0), draw.dim(high=7)
    batch = draw.shape(0, 2, zero=0)
    a, b = draw.values((*batch, m, k), draw.dtype(), wild=True), draw.values((*(batch if draw.maybe() else ()), k, n), draw.dtype(index=1), wild=True)
    zeros = [draw.values((), a.dtype, 0, 9) if draw.maybe(0.6) else None, draw.values(draw.one((), (n,)), b.dtype, 0, 9) if draw.maybe(0.6) else None]
    inputs = [a, b, *zeros]
    while inputs[-1] is None:
        inputs.pop()
    return draw.case(inputs)


def scale(draw, shape=(), low=0.01, high=0.2, dtype="float32"):
    return numpy.asarray(draw.rng.uniform(low, high, shape)).astype(dtype)


def exact_scale(draw, shape=(), dtype="float32"):
    """Of few bits: products of two are exact, so that ties are ties in any precision."""
    return numpy.asarray(draw.rng.integers(1, 64, shape) / 256).astype(dtype)


def power_of_two(draw, dtype="float32"):
    return numpy.asarray(2.0 ** draw.int(-1, 5)).astype(dtype)


@operator("QLinearMatMul")
def qlinear_matmul(draw):
    m, k, n = draw.dim(zero=0, high=7), draw.dim(zero=0, high=7), draw.dim(zero=0, high=7)
    batch = draw.shape(0, 2, zero=0)
    types = [draw.dtype("int8", "uint8"), draw.dtype("int8", "uint8", index=3), draw.dtype("int8", "uint8", index=7)]
    a, b = draw.values((*batch, m, k), types[0], -99, 99, True), draw.values((*batch, k, n), types[1], -99, 99, True)
    zero = [draw.values((), t, 0, 30) for t in types]
    kind = draw.dtype("float32", index=1)
    return draw.case([a, exact_scale(draw, dtype=kind), zero[0], b, exact_scale(draw, dtype=kind), zero[1], power_of_two(draw, kind), zero[2]])
