#!/usr/bin/env python3
"""Runs a model on zeros, once by itself and then as several requests, and says where its nodes run.

usage: classify.py MODEL.onnx [CONFIG.yaml]
"""
import sys

import evener
import numpy

if len(sys.argv) not in (2, 3):
    sys.exit(__doc__.strip())
try:
    runtime = evener.Runtime(sys.argv[2] if len(sys.argv) > 2 else None)
    session = runtime.session(sys.argv[1])

    # A dim that the model leaves open, a name or None, is 1 here.
    inputs = {value.name: numpy.zeros([dim if isinstance(dim, int) else 1 for dim in value.shape], value.dtype) for value in session.inputs}

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
