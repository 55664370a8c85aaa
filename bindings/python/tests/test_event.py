"""Events, copies that devices do while the caller goes on, and OpenCL objects as integers."""
import os

import evener
import numpy
import pytest


@pytest.fixture
def runtime():
    return evener.Runtime(cache_dir="")


@pytest.fixture
def gpu(runtime):
    try:
        return runtime.device("opencl:0")
    except evener.Error as error:
        if os.environ.get("EVN_REQUIRE_OPENCL") == "1":
            raise
        pytest.skip(str(error))


def filled(device, values):
    tensor = device.tensor(values.shape, values.dtype)
    numpy.from_dlpack(tensor)[...] = values
    return tensor


def test_copies_go_there_and_back(runtime, gpu):
    values = numpy.arange(1000, dtype="float32")
    host, back = filled(runtime.devices[0], values), runtime.devices[0].tensor(values.shape)
    there = gpu.tensor(values.shape)
    up = evener.copy_async(host, there)
    down = evener.copy_async(there, back, after=[up])
    assert down.wait() and up.wait(0)
    assert (back.numpy() == values).all()
    mem, offset = there.opencl_buffer()
    same = gpu.wrap_opencl_buffer(mem, (10, 100), offset=offset)
    assert (same.numpy().ravel() == values).all() and same.device == gpu.name
    with pytest.raises(evener.Error):
        back.opencl_buffer()


def test_events_order_devices(runtime, gpu):
    event = gpu.record_event()
    runtime.devices[0].wait_event(event)
    gpu.wait_event(event)
    assert event.wait(timeout=60)
    context, device, queue = gpu.opencl_objects()
    assert context and device and queue
    native = event.export_opencl(gpu)
    again = gpu.import_opencl_event(native)
    assert again.wait(60)
    event.close()
    with pytest.raises(evener.Error):
        event.wait()
    with pytest.raises(evener.Error) as caught:  # it is open, as opencl:0
        runtime.attach_opencl("display", context, device)
    assert caught.value.status == evener.Status.WRONG_STATE
    with evener.Runtime(cache_dir="") as second:
        attached = second.attach_opencl("display", context, device, queue)
        assert attached.name == "display" and attached.opencl_objects() == (context, device, queue)


def test_copies_of_the_host_have_happened(runtime):
    values = numpy.arange(6, dtype="int32").reshape(2, 3)
    host, other = filled(runtime.devices[0], values), runtime.devices[0].tensor((2, 3), "int32")
    assert evener.copy_async(host, other).wait(0)
    assert (other.numpy() == values).all()
    with pytest.raises(evener.Error):
        evener.copy_async(host, runtime.devices[0].tensor((3, 2), "int32"))
