"""Spectra and windows."""
import numpy

from .draw import FLOATS, numpy_dtype, onnx_type, operator


@operator("HannWindow", "HammingWindow", "BlackmanWindow")
def window_function(draw):
    size = numpy.array(draw.int(3, 20), draw.dtype("int32", "int64"))
    return draw.case([size], draw.some(periodic=draw.int(0, 1), output_datatype=onnx_type(numpy_dtype(draw.one("float32", "float64")))))


@operator("DFT")
def dft(draw):
    rank, dtype = draw.int(1, 3), draw.dtype(*FLOATS)
    inverse = draw.maybe(0.3)
    complex_in = inverse or draw.maybe(0.4)
    shape = [draw.int(1, 2), *(draw.int(1, 6) for _ in range(rank)), 2 if complex_in else 1]
    axis = draw.int(1, rank)
    attributes = draw.some(onesided=0) if complex_in else draw.some(onesided=draw.int(0, 1))
    if inverse:
        attributes["inverse"] = 1
    x = draw.values(shape, dtype)
    length = numpy.array(draw.int(1, 8), "int64") if draw.maybe(0.4) else None
    if draw.opset < 20:
        inputs = [x, length] if length is not None else [x]
        return draw.case(inputs, {**attributes, "axis": axis})
    inputs = [x, length, numpy.array(draw.one(axis, axis - len(shape)), "int64") if axis != rank or draw.maybe() else None]
    while inputs[-1] is None:
        inputs.pop()
    return draw.case(inputs, attributes)


@operator("STFT")
def stft(draw):
    frame = draw.int(2, 8)
    length, dtype = frame + draw.int(0, 12), draw.dtype(*FLOATS)
    inputs = [draw.values((draw.int(1, 2), length, 1), dtype), numpy.array(draw.int(1, 4), "int64")]
    inputs += draw.one([draw.values((frame,), dtype, 0, 1)], [None, numpy.array(frame, "int64")],
                       [draw.values((frame,), dtype, 0, 1), numpy.array(frame, "int64")])
    return draw.case(inputs, draw.some(onesided=draw.int(0, 1)))


@operator("MelWeightMatrix")
def mel_weights(draw):
    rate, length = draw.one(8000, 16000, 22050), draw.one(16, 64, 128, 512)
    low, high = draw.real(0, 500), draw.real(1000, 4000)
    inputs = [numpy.array(draw.int(2, 12), "int64"), numpy.array(length, "int64"), numpy.array(rate, "int64"), numpy.array(low, "float32"),
              numpy.array(high, "float32")]
    return draw.case(inputs, draw.some(output_datatype=onnx_type(numpy.dtype("float32"))))
