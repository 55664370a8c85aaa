#!/usr/bin/env python3
"""What it takes to map a tensor of an OpenCL device, to copy one there while the caller goes on, and to run with memory of the host.

usage: copies.py [--device opencl:0] [--mib 64] [--rounds 15]

Medians, in ms: of a map and an unmap for reading, for writing and for both; of the call of an asynchronous copy to the device, of that
call and the wait for its end, and of the latter from pageable memory and from a tensor with EVN_TENSOR_PINNED; and of a run of one Relu, from memory of the
host into memory of the host, where it lies so that a device with unified memory uses it there (docs/placement.md), and four bytes behind. EVENER_LIBRARY names the library; to compare with an older build, run this with the Python package of that build.
"""
import argparse
import ctypes
import pathlib
import statistics
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))


def median_ms(rounds, call):
    times = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times[1:])


def measure_runs(runtime, device, library, rounds, sizes):
    from evener import _raw
    from evener._library import check, new_error
    import onnx
    from onnx import TensorProto, helper
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = runtime.session(model.SerializeToString(), device=device.name)
    page = 4096
    for size in sizes:
        times = []
        for skip in (0, 4):
            tensors = (_raw.evn_tensor * 2)()
            memory = [ctypes.create_string_buffer(size + 2 * page) for _ in range(2)]
            for i in range(2):
                address = (ctypes.addressof(memory[i]) + page - 1) // page * page + skip
                ctypes.memset(address, 0, size)
                error = new_error()
                handle = _raw.evn_tensor()
                check(library.evn_tensor_wrap(runtime._handle, ctypes.c_void_p(address), size, _raw.EVN_DTYPE_FLOAT32, (ctypes.c_int64 * 1)(size // 4), 1,
                                              _raw.evn_deleter(), None, handle, error), error)
                tensors[i] = handle
            given, wanted = (_raw.evn_tensor * 1)(tensors[0]), (_raw.evn_tensor * 1)(tensors[1])

            def run():
                error = new_error()
                check(library.evn_session_run(session._handle, given, 1, wanted, 1, None, error), error)
            times.append(median_ms(rounds, run))
            for handle in tensors:
                check(library.evn_tensor_release(handle), new_error())
        print(f"a run from {size} bytes of the host into as many: {times[0]:.3f} ms in place, {times[1]:.3f} ms with copies")


def main():
    import evener
    from evener import _raw
    from evener._library import check, new_error
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="opencl:0")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    runtime = evener.Runtime()
    device = runtime.device(arguments.device)
    elements = arguments.mib << 18
    there, error = _raw.evn_tensor(), new_error()
    library = device._library  # of a build that may be older than the package's functions for tensors
    check(library.evn_tensor_create(device._handle, _raw.EVN_DTYPE_FLOAT32, (ctypes.c_int64 * 1)(elements), 1, 0, there, error), error)

    def map_and_unmap(flags):
        data, size, error = ctypes.c_void_p(), ctypes.c_size_t(), new_error()
        check(library.evn_tensor_map(there, flags, data, size, error), error)
        check(library.evn_tensor_unmap(there, error), error)

    print(f"{device.name}: {device.description}, {arguments.mib} MiB")
    for name, flags in (("read", _raw.EVN_MAP_READ), ("write", _raw.EVN_MAP_WRITE), ("both", _raw.EVN_MAP_READ | _raw.EVN_MAP_WRITE)):
        print(f"map and unmap, {name}: {median_ms(arguments.rounds, lambda: map_and_unmap(flags)):.3f} ms")
    if hasattr(evener, "copy_async"):
        source, target = runtime.devices[0].tensor((elements,)), device.tensor((elements,))
        events = []
        print(f"copy_async: {median_ms(arguments.rounds, lambda: events.append(evener.copy_async(source, target))):.3f} ms for the call")
        for event in events:
            event.wait()
        print(f"copy_async and wait: {median_ms(arguments.rounds, lambda: evener.copy_async(source, target).wait()):.3f} ms")

        def copy(source_handle, target_handle):
            event, error = _raw.evn_event(), new_error()
            check(library.evn_tensor_copy_async(source_handle, target_handle, None, 0, event, error), error)
            check(library.evn_event_wait(event, 2**64 - 1, error), error)
            library.evn_event_release(event)

        for bytes_ in (602112, arguments.mib << 20):  # an image of ImageNet, and as above
            handles = []
            for where, tensor_flags in ((runtime.devices[0], 0), (device, _raw.EVN_TENSOR_PINNED), (device, 0)):
                handle, error = _raw.evn_tensor(), new_error()
                begin = time.perf_counter()
                check(library.evn_tensor_create(where._handle, _raw.EVN_DTYPE_FLOAT32, (ctypes.c_int64 * 1)(bytes_ // 4), 1, tensor_flags, handle, error),
                      error)
                handles.append((handle, time.perf_counter() - begin))
            (pageable, _), (pinned, creation), (target, _) = handles
            print(f"{bytes_} bytes to the device: from pageable memory {median_ms(arguments.rounds, lambda: copy(pageable, target)):.3f} ms, from a pinned "
                  f"tensor {median_ms(arguments.rounds, lambda: copy(pinned, target)):.3f} ms (made in {1e3 * creation:.1f} ms)")
            for handle, _ in handles:
                check(library.evn_tensor_release(handle), error)
    measure_runs(runtime, device, library, arguments.rounds, (16 << 10, 64 << 10, 256 << 10, 602112, arguments.mib << 20))


if __name__ == "__main__":
    main()
