"""If, Loop and Scan with drawn bodies: chains of small operators over what goes in, what the graph around has, and one another."""
import numpy
import onnx

from .draw import operator

_BINARY, _UNARY = ("Add", "Sub", "Mul", "Max"), ("Neg", "Abs", "Tanh", "Identity")
_TOLERANCE = (1e-4, 1e-5, 1e-5)  # a chain may take numbers from one another that are nearly alike
_FLOAT, _BOOL, _INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL, onnx.TensorProto.INT64


def _node(op, inputs, outputs, **attributes):
    return onnx.helper.make_node(op, inputs, outputs, **attributes)


def _info(name, kind=_FLOAT, dims=None):
    return onnx.helper.make_tensor_value_info(name, kind, dims)


def _constant(name, value):
    return _node("Constant", [], [name], value=onnx.numpy_helper.from_array(numpy.asarray(value)))


def _plan(draw, sources, count):
    """Operators and their operands, as numbers of sources and earlier results: the same for every name that a body gives them."""
    plan = []
    for i in range(count):
        op = draw.one(*_BINARY, *_UNARY)
        plan.append((op, [draw.int(0, sources + i - 1) for _ in range(2 if op in _BINARY else 1)]))
    return plan


def _chain(prefix, plan, sources, results):
    """The plan's nodes; the last of what there is goes by the names of the results."""
    names, nodes = list(sources), []
    for i, (op, operands) in enumerate(plan):
        names.append(f"{prefix}t{i}")
        nodes.append(_node(op, [names[j] for j in operands], names[-1:]))
    return nodes + [_node("Identity", [names[len(names) - 1 - i % len(names)]], [result]) for i, result in enumerate(results)]


def _branch(prefix, plan, sources, count, inner=None):
    """A body without inputs; with `inner` another If is between the sources and the plan."""
    results = [f"{prefix}r{i}" for i in range(count)]
    nodes = []
    if inner is not None:
        nodes.append(inner(f"{prefix}i_", [f"{prefix}inner"]))
        sources = [*sources, f"{prefix}inner"]
    return onnx.helper.make_graph(nodes + _chain(prefix, plan, sources, results), f"{prefix}body", [], [_info(name) for name in results])


@operator("If")
def choice(draw):
    shape, count, nested = draw.shape(0, 3, zero=0), draw.int(1, 2), draw.maybe(0.4)
    x = [draw.values(shape) for _ in range(2)]
    plans = [_plan(draw, 2 + (nested and i == 0), draw.int(0, 4)) for i in range(2)]
    inner_plans = [_plan(draw, 2, draw.int(0, 2)) for _ in range(2)]

    def nodes(prefix, inputs, outputs):
        def inner(within, results):
            branches = [_branch(f"{within}{i}_", plan, inputs[2:], 1) for i, plan in enumerate(inner_plans)]
            return _node("If", [inputs[1]], results, then_branch=branches[0], else_branch=branches[1])
        branches = [_branch(f"{prefix}{i}_", plan, inputs[2:], count, inner if nested and i == 0 else None) for i, plan in enumerate(plans)]
        return [_node("If", inputs[:1], outputs, then_branch=branches[0], else_branch=branches[1])]
    return draw.graph([draw.values((), "bool"), draw.values((), "bool"), *x], nodes, {"plans": plans, "nested": nested}, count, tolerance=_TOLERANCE)


def _loop_body(prefix, plan, states, outer, scans, stop):
    """Turns go on while their number is below `stop`, a name of outside, where there is one."""
    turn, go, on = f"{prefix}turn", f"{prefix}go", f"{prefix}on"
    carried = [f"{prefix}s{i}" for i in range(states)]
    results = [f"{prefix}r{i}" for i in range(states + scans)]
    nodes = [_node("Less", [turn, stop], [on]) if stop else _node("Identity", [go], [on])]
    nodes.append(_node("Cast", [turn], [f"{prefix}count"], to=_FLOAT))
    nodes += _chain(prefix, plan, [*carried, *outer, f"{prefix}count"], results[:states] + [f"{prefix}wide{i}" for i in range(scans)])
    nodes += [_node("Add", [f"{prefix}wide{i}", outer[0]], [results[states + i]]) for i in range(scans)]
    inputs = [_info(turn, _INT64, []), _info(go, _BOOL, []), *(_info(name) for name in carried)]
    return onnx.helper.make_graph(nodes, f"{prefix}body", inputs, [_info(on, _BOOL, []), *(_info(name) for name in results)])


@operator("Loop")
def loop(draw):
    shape, states, scans = draw.shape(0, 2, zero=0), draw.int(1, 2), draw.int(0, 2)
    x, outer = [draw.values(shape) for _ in range(states)], draw.values(shape)
    plan, bounded, stops, nested = _plan(draw, states + 2, draw.int(1, 4)), draw.maybe(0.7), draw.maybe(0.4), draw.maybe(0.2)
    turns = numpy.array(draw.int(1 if scans else 0, 5), "int64")
    stop = numpy.array(draw.int(0, 4), "int64")
    stops, go = stops or not bounded, numpy.array(bool(scans) or draw.maybe(0.9))

    def nodes(prefix, inputs, outputs):
        body = _loop_body(prefix, plan, states, inputs[3:4], scans, inputs[2] if stops else "")
        limits = [inputs[0] if bounded else "", inputs[1]]
        if not nested:
            return [_node("Loop", [*limits, *inputs[4:]], outputs, body=body)]
        branch = onnx.helper.make_graph([_node("Loop", [*limits, *inputs[4:]], [f"{prefix}l{i}" for i in range(len(outputs))], body=body)],
                                        f"{prefix}then", [], [_info(f"{prefix}l{i}") for i in range(len(outputs))])
        other = onnx.helper.make_graph([_node("Identity", inputs[3:4], [f"{prefix}e{i}"]) for i in range(len(outputs))],
                                       f"{prefix}else", [], [_info(f"{prefix}e{i}") for i in range(len(outputs))])
        return [_constant(f"{prefix}yes", numpy.array(True)), _node("If", [f"{prefix}yes"], outputs, then_branch=branch, else_branch=other)]
    return draw.graph([turns, go, stop, outer, *x], nodes, {"plan": plan, "scans": scans, "bounded": bounded, "stops": stops, "nested": nested}, states + scans, tolerance=_TOLERANCE)


@operator("Scan")
def scan(draw):
    batched = draw.opset < 9
    batch, steps, inner = draw.int(1, 2), draw.int(1, 4), draw.shape(0, 2, zero=0)
    states, feeds, results = draw.int(1, 2), draw.int(1, 2), draw.int(1, 2)
    plan, outer = _plan(draw, states + feeds + 1, draw.int(1, 4)), draw.values(inner)
    in_axes = [0 if batched else draw.axis(len(inner) + 1) for _ in range(feeds)]
    out_axes = [0 if batched else draw.axis(len(inner) + 1) for _ in range(results)]
    directions, out_directions = [draw.int(0, 1) for _ in range(feeds)], [0 if batched else draw.int(0, 1) for _ in range(results)]
    front = (batch,) if batched else ()
    x = [draw.values(front + inner) for _ in range(states)]
    for axis in in_axes:
        whole = list(inner)
        whole.insert(axis % (len(inner) + 1), steps)
        x.append(draw.values(front + tuple(whole)))
    attributes = {"num_scan_inputs": feeds}
    if batched:
        attributes.update(draw.some(directions=directions))
        lengths = draw.values((batch,), "int64", 1, steps) if draw.maybe(0.3) else None
    else:
        if any(axis != 0 for axis in in_axes) or draw.maybe(0.3):
            attributes["scan_input_axes"] = in_axes
        if any(axis != 0 for axis in out_axes) or draw.maybe(0.3):
            attributes["scan_output_axes"] = out_axes
        attributes.update(draw.some(scan_input_directions=directions, scan_output_directions=out_directions))
        lengths = None

    def nodes(prefix, inputs, outputs):
        names = [f"{prefix}b{i}" for i in range(states + feeds)]
        made = [f"{prefix}r{i}" for i in range(states + results)]
        body_nodes = _chain(prefix, plan, [*names, inputs[0]], made)
        body = onnx.helper.make_graph(body_nodes, f"{prefix}body", [_info(name) for name in names], [_info(name) for name in made])
        given = ([inputs[1]] if batched else []) + inputs[2:]
        return [_node("Scan", given, outputs, body=body, **attributes)]
    case = draw.graph([outer, lengths, *x], nodes, {**attributes, "plan": plan}, states + results, tolerance=_TOLERANCE)
    case.constant -= {0}
    return case
