#!/usr/bin/env python3
"""Has two devices share every product of real models (rules with `split`), and compares with the first device alone: the same bits
where both are OpenCL devices, else within the tolerance.

usage: split_nodes.py [NAME ...]      EVENER_LIBRARY, EVENER_MODELS: as for the tests

The devices are two of PoCL's on the processor, which this program asks for (POCL_DEVICES). The exit status is 1 where a result is wrong, 3
where there is no such device.
"""
import json
import os
import sys

import cuts
import evener
import numpy

NAMES = ("cls", "det", "rec", "PP-OCRv6_rec_tiny", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x1_0", "bert_mini", "gpt_kv")
PRODUCTS = "[Conv, ConvTranspose, MatMul, Gemm]"
MATCH = 'platform: "Portable Computing Language", index: '
DEVICES = (f"devices: {{cpu: {{type: cpu, threads: 2}}, first: {{type: opencl, match: {{{MATCH}0}}}}, "
           f"second: {{type: opencl, match: {{{MATCH}1}}}}}}\n")


def session_of(name, placement):
    runtime = evener.Runtime(config_text=DEVICES + placement, cache_dir="")
    return runtime.session(cuts.content_of(name))


def shared(devices, default):
    return (f"placement: {{default: {default}, measure: false, rules: [{{match: {{op: {PRODUCTS}}}, split: [{', '.join(devices)}], policy: prefer}}]}}")


def check(name):
    """What is wrong with the model's results."""
    feeds, expected, _ = cuts.on_the_cpu(name)
    whole = cuts.result(session_of(name, "placement: {default: [first, cpu]}"), feeds)
    faults = []
    for devices, default in (("first", "second"), "[first, cpu]"), (("cpu", "second"), "cpu"):
        with session_of(name, shared(devices, default)) as session:
            parts = json.loads(session.explain("json"))["split_nodes"]
            nodes = {part["node"] for part in parts}
            print(f"{name}: {len(nodes)} nodes shared by {' and '.join(devices)}")
            if not nodes or {part["device"] for part in parts} != set(devices):
                faults.append(f"{name}: no node is shared by {devices}")
            for _ in range(2):
                got = cuts.result(session, feeds)
                faults += [f"{name}: {fault}" for fault in cuts.faults_of(got, expected)]
                for key, value in whole.items():
                    if devices[0] == "first" and not numpy.array_equal(got[key], value, equal_nan=value.dtype.kind == "f"):
                        faults.append(f"{name}: output {key} has other bits than on one device")
    return faults


def main():
    os.environ["POCL_DEVICES"] = "pthread pthread"
    try:
        session_of("cls", "placement: {default: [first, cpu]}").close()
    except evener.Error as error:
        if "DEVICE_UNAVAILABLE" in str(error):
            print(f"no two OpenCL devices of PoCL: {error}")
            return cuts.NO_DEVICE
        raise
    faults = [fault for name in sys.argv[1:] or NAMES for fault in check(name)]
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
