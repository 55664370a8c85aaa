"""LSTM, GRU and RNN."""
import numpy

from .draw import FLOATS, operator

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_FUNCTIONS = ("Sigmoid", "Tanh", "Relu")


@operator("LSTM", "GRU", "RNN")
def recurrent(draw):
    gates = _GATES[draw.op]
    direction = draw.one("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden, dtype = draw.int(1, 4), draw.int(1, 3), draw.int(1, 4), draw.int(1, 4), draw.dtype(*FLOATS)
    attributes = {"hidden_size": hidden, **({"direction": direction} if direction != "forward" or draw.maybe() else {})}
    if draw.maybe(0.2):
        attributes["activations"] = [draw.one(*_FUNCTIONS) for _ in range(ways * max(gates - 1, 1))]
    if draw.maybe(0.2):
        attributes["clip"] = draw.real(0.5, 3)
    if draw.op == "GRU":
        attributes.update(draw.some(linear_before_reset=draw.int(0, 1)))
    lengths = None
    if draw.maybe(0.3):
        lengths = numpy.array([draw.int(1, steps) for _ in range(batch)], "int32")
    states = [draw.values((ways, batch, hidden), dtype, -1, 1) if draw.maybe() else None]
    if draw.op == "LSTM":
        states.append(draw.values((ways, batch, hidden), dtype, -1, 1) if draw.maybe() else None)
        states.append(draw.values((ways, 3 * hidden), dtype, -1, 1) if draw.maybe(0.3) else None)
        if draw.maybe(0.1):
            attributes["input_forget"] = draw.int(0, 1)
    inputs = [draw.values((steps, batch, size), dtype), draw.values((ways, gates * hidden, size), dtype, -1, 1),
              draw.values((ways, gates * hidden, hidden), dtype, -1, 1),
              draw.values((ways, 2 * gates * hidden), dtype, -1, 1) if draw.maybe(0.7) else None, lengths, *states]
    while inputs[-1] is None:
        inputs.pop()
    return draw.case(inputs, attributes, draw.int(1, 3 if draw.op == "LSTM" else 2))
