"""Operators of pictures: resampling, regions of interest, boxes."""
import numpy

from .draw import FLOATS, operator


def _sizes(draw, shape, factors):
    return [max(1, int(round(n * f))) for n, f in zip(shape, factors)]


@operator("Resize")
def resize(draw):
    shape, dtype = (draw.int(1, 2), draw.int(1, 2), draw.int(1, 5), draw.int(1, 5)), draw.dtype(*FLOATS, "uint8", "int8")
    factors = [1.0, 1.0, draw.one(0.5, 0.6, 1.0, 2.0, 2.5, 3.0), draw.one(0.5, 0.8, 1.0, 2.0, 1.5, 3.0)]
    modes = ("nearest", "linear") if draw.opset < 11 else ("nearest", "linear", "linear", "cubic")
    attributes = draw.some(mode=draw.one(*modes))
    mode = attributes.get("mode", "nearest")
    x = draw.values(shape, dtype, 0, 9)
    if mode != "nearest" and "int" in dtype:  # weights that are exact, so that rounding decides nothing
        factors[2:] = draw.one(0.5, 1.0, 2.0), draw.one(0.5, 1.0, 2.0)
    if draw.opset < 11:
        return draw.case([x, numpy.array(factors, "float32")], attributes)
    places = ["half_pixel", "pytorch_half_pixel", "asymmetric"] + (["align_corners"] if "int" not in dtype or mode == "nearest" else []) + (["half_pixel_symmetric"] if draw.opset >= 19 else [])
    attributes.update(draw.some(coordinate_transformation_mode=draw.one(*places)))
    if mode == "nearest" and attributes.get("coordinate_transformation_mode") == "align_corners":  # coordinates that are exact
        factors[2:] = draw.one(0.5, 1.0, 2.0, 3.0), draw.one(0.5, 1.0, 2.0, 3.0)
    if mode == "nearest":
        attributes.update(draw.some(nearest_mode=draw.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")))
        if "nearest_mode" in attributes:
            factors[2:] = draw.one(0.5, 1.0, 2.0, 4.0), draw.one(0.5, 1.0, 2.0, 4.0)
    if mode == "cubic":
        attributes.update(draw.some(cubic_coeff_a=draw.one(-0.5, -0.75), exclude_outside=draw.int(0, 1)))
    if mode != "nearest" and draw.opset >= 18 and draw.maybe(0.3):
        attributes["antialias"] = 1
    sizes, scales = numpy.array(_sizes(draw, shape, factors), "int64"), numpy.array(factors, "float32")
    if draw.opset >= 18 and draw.maybe(0.4):
        attributes["axes"] = draw.one([2, 3], [-2, -1], [3, 2])
        order = [a % 4 for a in attributes["axes"]]
        sizes, scales = sizes[order], scales[order]
    roi = numpy.zeros((0,), "float32") if draw.opset < 13 else None
    by_scales = draw.maybe()
    inexact = "antialias" in attributes or not by_scales and any(size != n * f for size, n, f in zip(_sizes(draw, shape, factors), shape, factors))
    tolerance = (0, 0, 1) if mode != "nearest" and "int" in dtype and inexact else None  # of weights that no binary fraction is
    if by_scales:
        return draw.case([x, roi, scales], attributes, tolerance=tolerance)
    return draw.case([x, roi, numpy.zeros((0,), "float32") if draw.opset < 13 else None, sizes], attributes, tolerance=tolerance)


@operator("Upsample")
def upsample(draw):
    dtype = draw.dtype(*FLOATS, "int32", "uint8", "int8")
    x = draw.values((1, draw.int(1, 2), draw.int(1, 4), draw.int(1, 4)), dtype, 0, 9)
    factors = [1.0, 1.0, draw.one(1.0, 2.0, 3.0, 1.5), draw.one(1.0, 2.0, 2.5)]
    attributes = draw.some(mode=draw.one("nearest", "linear"))
    if "int" in dtype and "mode" in attributes:
        factors[2:] = draw.one(1.0, 2.0, 4.0), draw.one(1.0, 2.0)
    if draw.opset < 9:
        return draw.case([x], {**attributes, "scales": factors})
    return draw.case([x, numpy.array(factors, "float32")], attributes)


@operator("GridSample")
def grid_sample(draw):
    modes = ("bilinear", "nearest", "bicubic") if draw.opset < 20 else ("linear", "nearest", "cubic")
    rank = 2 if draw.opset < 20 or draw.maybe(0.7) else 3
    attributes = draw.some(mode=draw.one(*(modes if rank == 2 else modes[:2])), padding_mode=draw.one("zeros", "border", "reflection"),
                           align_corners=draw.int(0, 1))
    n, dtype = draw.int(1, 2), draw.dtype(*FLOATS)
    x = draw.values((n, draw.int(1, 2), *(draw.int(2, 5) for _ in range(rank))), dtype)
    return draw.case([x, draw.values((n, *(draw.int(1, 4) for _ in range(rank)), rank), dtype, -1.3, 1.3)], attributes)


@operator("AffineGrid")
def affine_grid(draw):
    n, rank, dtype = draw.int(1, 2), draw.int(2, 3), draw.dtype(*FLOATS)
    size = [n, draw.int(1, 2), *(draw.int(2, 4) for _ in range(rank))]
    return draw.case([draw.values((n, rank, rank + 1), dtype), numpy.array(size, "int64")], draw.some(align_corners=draw.int(0, 1)))


@operator("RoiAlign")
def roi_align(draw):
    n, height, width, count, dtype = draw.int(1, 2), draw.int(2, 6), draw.int(2, 6), draw.int(1, 3), draw.dtype(*FLOATS)
    corners = draw.rng.uniform(0, [width, height], (count, 2))
    boxes = numpy.concatenate([corners, corners + draw.rng.uniform(0.1, 4, (count, 2))], 1).astype(dtype)
    attributes = draw.some(mode=draw.one("avg", "max"), output_height=draw.int(1, 3), output_width=draw.int(1, 3), sampling_ratio=draw.int(0, 3),
                           spatial_scale=draw.one(1.0, 0.5))
    if draw.opset >= 16:
        attributes.update(draw.some(coordinate_transformation_mode=draw.one("half_pixel", "output_half_pixel")))
    return draw.case([draw.values((n, draw.int(1, 2), height, width), dtype), boxes, draw.rng.integers(0, n, count).astype("int64")], attributes)


@operator("MaxRoiPool")
def max_roi_pool(draw):
    n, height, width, count, dtype = draw.int(1, 2), draw.int(2, 6), draw.int(2, 6), draw.int(1, 3), draw.dtype(*FLOATS)
    corners = draw.rng.integers(0, [width, height], (count, 2))
    regions = numpy.concatenate([draw.rng.integers(0, n, (count, 1)), corners, corners + draw.rng.integers(0, 4, (count, 2))], 1)
    attributes = {"pooled_shape": [draw.int(1, 3), draw.int(1, 3)], **draw.some(spatial_scale=draw.one(1.0, 0.25))}
    return draw.case([draw.values((n, draw.int(1, 2), height, width), dtype), regions.astype(dtype)], attributes)


@operator("NonMaxSuppression")
def non_max_suppression(draw):
    batches, boxes, classes = draw.int(1, 2), draw.int(1, 6), draw.int(1, 3)
    corners, sizes = draw.rng.uniform(0, 5, (batches, boxes, 2)), draw.rng.uniform(0.5, 4, (batches, boxes, 2))
    centered = draw.maybe(0.3)
    places = numpy.concatenate([corners, sizes if centered else corners + sizes], 2).astype("float32")
    scores = draw.rng.permutation(batches * classes * boxes).reshape(batches, classes, boxes).astype("float32") / 40
    inputs = [places, scores, numpy.array([draw.int(0, 5)], "int64"), numpy.array([draw.real(0, 1)], "float32"),
              numpy.array([draw.real(0, 0.6)], "float32")][:draw.int(2, 5)]
    return draw.case(inputs, {"center_point_box": 1} if centered else draw.some(center_point_box=0))
