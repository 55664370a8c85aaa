#!/usr/bin/env python3
"""Places the nodes of real models at random over the CPU and two OpenCL devices, and compares the results with the CPU's alone.

usage: cuts.py [--first N] [--count N]      EVENER_LIBRARY, EVENER_MODELS: as for the tests

Placement N is drawn by a generator whose seed is N, and is of the model number N modulo 20: --first N --count 1 repeats it.
Consecutive nodes tend to stay on one device: most plans have 3 to some 40 copies between devices. The devices are two of PoCL's on
the processor, which this program asks for (POCL_DEVICES). The exit status is 1 where a placement is wrong, 3 where there is no such
device.
"""
import argparse
import functools
import json
import os
import pathlib
import random
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
for folder in ("bindings/python", "bench", "bench/models"):
    sys.path.insert(0, str(REPOSITORY / folder))

import evener  # noqa: E402
import numpy  # noqa: E402
import zoo  # noqa: E402
from output_check import difference  # noqa: E402

NO_DEVICE = 3
DEVICES = ("cpu", "first", "second")
LEAST_CROSSINGS = 3
CHANGES = (2, 24)  # from one node to the next, as they are drawn; a value goes from device to device by way of the CPU
DRAWS = 20  # of one placement, until it has LEAST_CROSSINGS: devices refuse nodes
# By the dtype of an output: |a - b| <= rtol * |b| + atol * max|b|. Integers and booleans must be equal.
TOLERANCES = {"float32": (1e-3, 1e-4), "float64": (1e-3, 1e-4), "float16": (1e-2, 2e-3)}


def zoo_model(name):
    model = next(model for model in zoo.TRAINED + zoo.NOISE if model.name == name)
    return functools.lru_cache(model.content), model.feeds


def trained(name, feeds):
    return functools.partial(zoo.fetched, zoo.FILES.get(name, f"{name}.onnx")), lambda _, seed: feeds(seed)


MODELS = {  # name -> (() -> path or bytes, (content, seed) -> inputs)
    "cls": trained("cls", lambda seed: {"x": zoo.array_for("cls", (1, 3, 48, 96), seed)}),
    "det": trained("det", lambda seed: {"x": zoo.array_for("det", (1, 3, 64, 96), seed)}),
    "rec": trained("rec", lambda seed: {"x": zoo.array_for("rec", (1, 3, 48, 104), seed)}),
    "PP-OCRv6_det_tiny": trained("PP-OCRv6_det_tiny", lambda seed: {"x": zoo.piece_of_page(seed, 96, 128)}),
    "PP-OCRv6_rec_tiny": trained("PP-OCRv6_rec_tiny", lambda seed: {"x": zoo.piece_of_page(seed, 48, 128)}),
    **{name: zoo_model(name) for name in (
        "silero_vad", "silero_vad_16k_op15", "silero_vad_op18_ifless", "silero_vad_half", "silero_vad_16k_sequence", "magika",
        "basic_pitch", "ppocrv5_cls", "akiki_vad", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x1_0", "lstm_gru",
        "bert_mini", "gpt_kv")},
}
NAMES = sorted(MODELS)


def content_of(name):
    made = MODELS[name][0]()
    return made if isinstance(made, bytes) else str(made)


def result(session, feeds):
    return {name: numpy.array(value) for name, value in session.run(feeds).items()}


@functools.lru_cache(maxsize=None)
def on_the_cpu(name):
    """(what was put in, what came out, the names of the nodes that a device runs, in their order) of the CPU alone."""
    runtime = evener.Runtime(config_text="devices: {cpu: {type: cpu, threads: 2}}\nplacement: {default: cpu}\n", cache_dir="")
    content = content_of(name)
    session = runtime.session(content)
    feeds = MODELS[name][1](content, 1)
    outputs = result(session, feeds)
    nodes = [node["name"] for node in json.loads(session.explain("json"))["nodes"] if node["kernel"] != "planned"]
    return feeds, outputs, nodes


def draw(generator, nodes):
    """A device for each of the nodes, with as many changes from one node to the next as CHANGES says, more or less."""
    wanted = generator.randint(*CHANGES)
    change = min(0.6, wanted / max(1, len(nodes)))
    devices, device = [], generator.choice(DEVICES)
    for _ in nodes:
        if generator.random() < change:
            device = generator.choice([other for other in DEVICES if other != device])
        devices.append(device)
    return devices


def configuration(nodes, devices):
    """The placement as rules by the names of nodes. In a name, * and ? match themselves too."""
    rules = []
    for device in DEVICES:
        names = [json.dumps(node, ensure_ascii=False) for node, its in zip(nodes, devices) if its == device]
        if names:
            rules.append(f"    - {{match: {{name: [{', '.join(names)}]}}, device: {device}, policy: prefer}}")
    match = 'platform: "Portable Computing Language", index: '
    return "\n".join(["devices:", "  cpu: {type: cpu, threads: 2}", f"  first: {{type: opencl, match: {{{match}0}}}}",
                      f"  second: {{type: opencl, match: {{{match}1}}}}", "placement:", "  default: cpu", "  rules:", *rules, ""])


def crossings(session):
    return sum(copy["from"] != copy["to"] for copy in json.loads(session.explain("json"))["copies"])


def memory_of(runtime):
    """What is in use on each device, and what the library holds there once it has let go of what it caches."""
    held = {}
    for device in runtime.devices:
        device.trim_memory()
        stats = device.memory()
        heap = stats.by_class["heap"]  # tables of the runtime keep the few KiB that they have grown to
        held[device.name] = {**stats.by_class, "heap": heap // 2**16 * 2**16, "in all": stats.current - heap, "reserved": stats.reserved - heap}
    return held


def left_over(runtime, before, tries=50):
    """What is in use though it was not before, in words. Devices may let go of memory a little after the run that used it."""
    for _ in range(tries):
        after = memory_of(runtime)
        if after == before:
            return ""
        time.sleep(0.1)
    changed = [f"{device}: {key} {before[device][key]} -> {value} bytes" for device, stats in after.items()
               for key, value in stats.items() if value != before[device][key]]
    return f"memory is not given back: {', '.join(changed)}"


def faults_of(actual, expected):
    """What is wrong with outputs, in words."""
    if actual.keys() != expected.keys():
        return [f"the outputs are {sorted(actual)}, not {sorted(expected)}"]
    faults = []
    for name, wanted in expected.items():
        got, dtype = actual[name], str(wanted.dtype)
        if dtype in TOLERANCES:
            why = difference(got, wanted, TOLERANCES[dtype])
        else:
            why = "" if got.dtype == wanted.dtype and numpy.array_equal(got, wanted) else f"of {dtype} is not equal"
        faults += [f"output {name} {why}"] if why else []
    return faults


def try_placement(config, name):
    """(copies between devices, what is wrong)"""
    feeds, expected, _ = on_the_cpu(name)
    with evener.Runtime(config_text=config) as runtime:
        before = memory_of(runtime)
        model = runtime.model(content_of(name))
        loaded = memory_of(runtime)
        session = runtime.session(model)
        count = crossings(session)
        faults = []
        if count >= LEAST_CROSSINGS:
            once, twice = result(session, feeds), result(session, feeds)
            count = crossings(session)
            faults = faults_of(once, expected)
            faults += [f"output {key} has other bits when the session runs again" for key in once
                       if once[key].tobytes() != twice[key].tobytes()]
        session.close()
        kept = memory_of(runtime)
        # Weights and their packed copies are the model's.
        faults += [f"{device}: {key} {loaded[device][key]} -> {stats[key]} bytes with the session gone"
                   for device, stats in kept.items() for key in ("tensors", "arenas", "scratch", "states")
                   if stats[key] != loaded[device][key]]
        model.close()
        faults += list(filter(None, [left_over(runtime, before)]))
    return count, faults


def check(number):
    """(name, copies between devices, what is wrong) of a placement."""
    name = NAMES[number % len(NAMES)]
    nodes = on_the_cpu(name)[2]
    generator = random.Random(number)
    for _ in range(DRAWS):
        count, faults = try_placement(configuration(nodes, draw(generator, nodes)), name)
        if faults or count >= LEAST_CROSSINGS:
            return name, count, faults
    return name, count, [f"none of {DRAWS} draws has {LEAST_CROSSINGS} copies between devices"]


def two_devices():
    """Why the machine has not two devices of PoCL, or ""."""
    try:
        evener.Runtime(config_text=configuration(["a"], ["first"])).close()
    except evener.Error as error:
        if error.status == evener.Status.DEVICE_UNAVAILABLE:
            return error.message
        raise
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="the first placement (default: 0)")
    parser.add_argument("--count", type=int, default=1, help="how many placements there are (default: 1)")
    arguments = parser.parse_args()
    os.environ["POCL_DEVICES"] = "pthread pthread"
    if why := two_devices():
        print(f"no OpenCL device: {why}")
        return NO_DEVICE
    wrong, counts, start = 0, [], time.process_time()
    for number in range(arguments.first, arguments.first + arguments.count):
        # Before it is tried, so that it is told where the process dies.
        print(f"placement {number} of {NAMES[number % len(NAMES)]}: ", end="", flush=True)
        try:
            _, count, faults = check(number)
        except evener.Error as error:
            count, faults = 0, [f"{error.status}: {error}"]
        print("; ".join(faults) or f"{count} copies between devices", flush=True)
        counts.append(count)
        if faults:
            wrong += 1
            print(f"  repeat it by: python tests/models/cuts.py --first {number} --count 1", flush=True)
    print(f"{len(counts)} placements, {min(counts)} to {max(counts)} copies between devices, {wrong} wrong, "
          f"{time.process_time() - start:.0f} s of CPU time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
