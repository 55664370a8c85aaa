#!/usr/bin/env python3
"""Runs a model on zeros, once by itself and then as several requests, and says where its nodes run.

usage: classify.py MODEL.onnx [CONFIG.yaml [SIZE ...]]

SIZE ... are those of the dims that the model leaves open, in their order. Without them such a dim is 1 on axis 0 and 128 elsewhere.
"""
import sys

import evener
import numpy

if len(sys.argv) < 2:
    sys.exit(__doc__.strip())
try:
    runtime = evener.Runtime(sys.argv[2] if sys.argv[2:] and sys.argv[2] else None)
    session = runtime.session(sys.argv[1])

    for value in session.inputs:
        if value.shape is None:
            sys.exit(f"classify.py: input {value.name} has no rank")
    # A dim that the model leaves open is a name or None.
    sizes = map(int, sys.argv[3:])
    dims = {value.name: [dim if isinstance(dim, int) else next(sizes, 128 if axis else 1) for axis, dim in enumerate(value.shape)]
            for value in session.inputs}
    inputs = {value.name: numpy.zeros(dims[value.name], value.dtype) for value in session.inputs}

    outputs = session.run(inputs)
    for name, array in outputs.items():
        print(name, array.shape)
    print("largest:", next(iter(outputs.values())).argmax())

    # Requests run on threads of the library's; other threads of Python run meanwhile.
    requests = [session.submit(inputs, timeout=30) for _ in range(4)]
    for request in requests:
        request.result()
    print(session.explain())
except evener.Error as error:
    sys.exit(f"classify.py: {error}")
