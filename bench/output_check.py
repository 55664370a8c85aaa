"""How compare.py tells a wrong output: by a tolerance or, for quantized models and lower precisions, by the cosine."""
import numpy

from engines import ATOL, ENGINES, RTOL


def difference(actual, expected, tolerance=(RTOL, ATOL)):
    """Why an output is wrong, or "": NaN in other places, or further than rtol * |b| + atol * max|b| from the expected b."""
    rtol, atol = tolerance
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"is {actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
    a, b = actual.astype("float64"), expected.astype("float64")
    if b.size and not numpy.isfinite(b).any():
        return "has no finite number to compare"
    if not numpy.array_equal(numpy.isnan(a), numpy.isnan(b)):
        return "has NaN in other places"
    finite = numpy.isfinite(b)
    if not numpy.array_equal(a[~finite & ~numpy.isnan(b)], b[~finite & ~numpy.isnan(b)]):
        return "has infinities in other places"
    a, b = a[finite], b[finite]
    if b.size > 1 and b.min() == b.max():
        return "proves nothing: every expected value is the same"
    error = numpy.abs(a - b) - (rtol * numpy.abs(b) + atol * numpy.abs(b).max(initial=0))
    return f"differs by {numpy.abs(a - b).max():.3g}" if (error > 0).any() else ""


def least_cosine(folder, name, reference):
    """The least cosine of an engine's outputs, of the first or the last run, to the reference's."""
    least = 1.0
    with numpy.load(folder / f"{reference}.first.npz") as expected:
        for which in ("first", "last"):
            with numpy.load(folder / f"{name}.{which}.npz") as actual:
                for key in expected.files:
                    a, b = (values[key].astype("float64").ravel() for values in (actual, expected))
                    if a.size != b.size or not numpy.isfinite(a).all():
                        return -1.0
                    lengths = numpy.sqrt((a * a).sum() * (b * b).sum())
                    least = min(least, float((a * b).sum() / lengths) if lengths else float((a == b).all()))
    return least


def compare_outputs(folder, name, reference, model_rtol=RTOL):
    """Why the outputs of an engine's first or last run are wrong, or ""."""
    engine = ENGINES[name]
    tolerance = (max(engine.tolerance[0], model_rtol), engine.tolerance[1])
    if engine.cosine is not None:
        cosine = least_cosine(folder, name, reference)
        return "" if cosine >= engine.cosine else f"cosine {cosine:.4f}"
    with numpy.load(folder / f"{reference}.first.npz") as expected:
        for which in ("first", "last"):
            with numpy.load(folder / f"{name}.{which}.npz") as actual:
                if actual.files != expected.files:
                    return f"{len(actual.files)} outputs, not {len(expected.files)}"
                varied = any(numpy.unique(expected[key]).size > 1 for key in expected.files)
                for index, key in enumerate(expected.files):
                    got, wanted = actual[key], expected[key]
                    if varied and wanted.size > 1 and numpy.unique(wanted).size == 1 and numpy.array_equal(got.ravel(), wanted.ravel()):
                        continue  # the others prove enough
                    if not engine.keeps_shapes and got.size == wanted.size:
                        got = got.reshape(wanted.shape).astype(wanted.dtype)
                    why = difference(got, wanted, tolerance)
                    if why:
                        return f"output {index} of the {which} run {why}"
    return ""
