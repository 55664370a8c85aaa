"""The three that run drawn cases: Evener, onnx's reference evaluator and ONNX Runtime. Cases of one operator share a model."""
import contextlib
import io
import json
import os
import warnings

import evener
import numpy
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from .draw import onnx_type

IR_VERSION = 10
_UNREADABLE = ("tensor(bfloat16)", "tensor(int4)", "tensor(uint4)", "tensor(float4e2m1)")


class Unsupported(Exception):
    """A judge does not run this case."""


def names_of(index, case):
    inputs = [f"c{index}_x{i}" if x is not None else "" for i, x in enumerate(case.inputs)]
    return inputs, [f"c{index}_y{i}" for i in range(case.outputs)]


def model_of(cases):
    """One model of independent nodes, and what to feed it. A node has `outputs` outputs, all of them the model's."""
    nodes, inputs, outputs, weights, feeds = [], [], [], [], {}
    for index, case in enumerate(cases):
        names_in, names_out = names_of(index, case)
        if case.nodes is not None:
            nodes += case.nodes(f"c{index}_", names_in, names_out)
        else:
            nodes.append(onnx.helper.make_node(case.op, names_in, names_out, name=f"n{index}", domain=case.domain, **case.attributes))
        outputs += [onnx.helper.make_empty_tensor_value_info(name) for name in names_out]
        for position, (name, array) in enumerate(zip(names_in, case.inputs)):
            if array is None:
                continue
            if position in case.constant:
                weights.append(onnx.numpy_helper.from_array(array, name))
                continue
            dims = [f"{name}_{i}" for i in range(array.ndim)] if case.open_dims else array.shape
            inputs.append(onnx.helper.make_tensor_value_info(name, onnx_type(array.dtype), dims))
            feeds[name] = array
    graph = onnx.helper.make_graph(nodes, "drawn", inputs, outputs, weights)
    domains = {case.domain: case.opset for case in cases}
    domains.setdefault("", 21)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(*item) for item in domains.items()])
    model.ir_version = IR_VERSION
    return model, feeds


def split(cases, results):
    """The outputs of the model by case."""
    results = list(results)
    return [[results.pop(0) for _ in range(case.outputs)] for case in cases]


class Evener:
    """The library."""

    name = "evener"

    def __init__(self):
        self.runtime = evener.Runtime(threads=1)

    def run(self, model, feeds):
        return list(self.runtime.session(model.SerializeToString()).run(feeds).values())

    def run_explained(self, model, feeds, precision=None):
        """The outputs, and [(node, kernel)] of that run."""
        session = self.runtime.session(model.SerializeToString(), precision=precision)
        outputs = list(session.run(feeds).values())
        return outputs, [(node["name"], node["kernel"]) for node in json.loads(session.explain("json"))["nodes"]]


class Reference:
    """onnx.reference, in Python."""

    name = "onnx"

    def run(self, model, feeds):
        try:
            with warnings.catch_warnings(), numpy.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                return [numpy.asarray(x) for x in ReferenceEvaluator(model).run(None, feeds)]
        except Exception as error:  # what it raises where it cannot go on is of many kinds
            raise Unsupported(str(error)) from None


class OnnxRuntime:
    """ONNX Runtime on the CPU, without rewriting the graph."""

    name = "ort"

    def __init__(self):
        os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = self.options.inter_op_num_threads = 1
        self.options.log_severity_level = 4
        self.options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

    def run(self, model, feeds):
        model, feeds = self._small_as_weights(model, feeds)
        try:
            session = self._session(model)
            if any(output.type in _UNREADABLE for output in session.get_outputs()):
                session = self._session(self._readable(model, [output.name for output in session.get_outputs() if output.type in _UNREADABLE]))
            if not any(array.dtype.type.__module__ == "ml_dtypes" for array in feeds.values()):
                return session.run(None, feeds)
            return self._run_small(session, feeds)
        except Exception as error:  # no kernel for the type, an opset that it does not know, a shape that it refuses
            raise Unsupported(str(error)) from None

    def _session(self, model):
        return onnxruntime.InferenceSession(model.SerializeToString(), self.options, providers=["CPUExecutionProvider"])

    @staticmethod
    def _readable(model, names):
        """With a Cast to float32, which has all their values, behind outputs of types that its Python binding does not read."""
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        for output in copy.graph.output:
            if output.name in names:
                copy.graph.node.append(onnx.helper.make_node("Cast", [output.name], [f"{output.name}_read"], to=onnx.TensorProto.FLOAT))
                output.name += "_read"
                output.ClearField("type")
        return copy

    @staticmethod
    def _small_as_weights(model, feeds):
        """With the inputs of less than a byte as initializers: no array has them packed."""
        small = {name: array for name, array in feeds.items() if array.dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")}
        if not small:
            return model, feeds
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        copy.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in small.items())
        kept = [value for value in copy.graph.input if value.name not in small]
        del copy.graph.input[:]
        copy.graph.input.extend(kept)
        return copy, {name: array for name, array in feeds.items() if name not in small}

    @staticmethod
    def _run_small(session, feeds):
        """With types that numpy has not."""
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, onnx_type(array.dtype)) for name, array in feeds.items()}
        names = [output.name for output in session.get_outputs()]
        return [value.numpy() for value in session.run_with_ort_values(names, values)]

