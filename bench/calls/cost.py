"""As cost.c, in Python: cost.py MODEL COUNT."""
import sys
import time

import evener
import numpy

runtime = evener.Runtime(threads=1, cache_dir="")
run = runtime.session(sys.argv[1]).run
count = int(sys.argv[2])
inputs, outputs = {"x": numpy.zeros(1, "float32")}, {"y": numpy.zeros(1, "float32")}
for _ in range(count // 5):
    run(inputs, out=outputs)
begin = time.perf_counter_ns()
for _ in range(count):
    run(inputs, out=outputs)
print(f"{(time.perf_counter_ns() - begin) / count:.1f}")
