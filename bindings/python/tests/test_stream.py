"""evener.stream: order, bounds, errors and ends. Threads are held by events, never by time."""
import gc
import threading
import tracemalloc

import evener
import numpy
import pytest
import tiny
from helpers import floats


@pytest.fixture
def doubled(runtime):
    return runtime.session(tiny.scale())


def alive():
    return [thread for thread in threading.enumerate() if thread.name == "evener-stream"]


def test_outputs_come_in_the_order_of_the_items(doubled):
    items = [floats(i, i + 1) for i in range(100)]
    results = [outputs["y"].tolist() for outputs in evener.stream(doubled, items)]
    assert results == [[2 * i, 2 * i + 2] for i in range(100)]


def test_items_may_be_of_different_lengths_dicts_and_lists(runtime, doubled):
    items = [floats(1), [2.0, 3.0], floats(*range(1000)), {"x": floats(4)}, numpy.arange(6, dtype="float32")[::2]]
    results = [outputs["y"] for outputs in evener.stream(doubled, items, prefetch=2)]
    assert [result.size for result in results] == [1, 2, 1000, 1, 3]
    assert results[4].tolist() == [0, 4, 8]
    session = runtime.session(tiny.add())
    outputs, = evener.stream(session, [{"a": numpy.ones((1, 3), "float32"), "b": numpy.ones((1, 3), "float32")}])
    assert outputs["y"].tolist() == [[2, 2, 2]]


def test_items_come_with_their_outputs_when_asked_for(doubled):
    assert [(item, outputs["y"].tolist()) for item, outputs in
            evener.stream(doubled, [3, 4], load=lambda i: floats(i), with_items=True)] == [(3, [6]), (4, [8])]


def test_an_empty_source_ends_at_once(doubled):
    stream = evener.stream(doubled, [])
    assert list(stream) == []
    assert list(stream) == []


def test_no_more_than_so_many_items_are_under_way(doubled):
    given, loaded = [], []
    bounded = threading.Event()

    def load(i):
        assert i < 4 or bounded.is_set()
        loaded.append(i)
        return floats(i)

    with evener.stream(doubled, (given.append(i) or i for i in range(20)), load=load, prefetch=3) as results:
        first = next(results)  # its place is free now: three more may have been loaded
        assert first["y"].tolist() == [0]
        bounded.set()
        for i, outputs in enumerate(results, 1):
            assert outputs["y"].tolist() == [2 * i]
            assert len(given) <= i + 1 + 3 and len(loaded) <= i + 1 + 3
    assert loaded == list(range(20))


def test_a_reader_that_reuses_its_array_does_no_harm(doubled):
    def source():
        array = numpy.empty(4, "float32")
        for i in range(50):
            array[:] = i
            yield array

    assert [outputs["y"][0] for outputs in evener.stream(doubled, source(), prefetch=8)] == [2 * i for i in range(50)]


def test_a_consumer_that_stops_early_ends_thread_and_source(doubled):
    closed = threading.Event()

    def source():
        try:
            while True:
                yield floats(1, 2)
        finally:
            closed.set()

    stream = evener.stream(doubled, source())
    for outputs in stream:
        assert outputs["y"].tolist() == [2, 4]
        break
    assert alive()
    stream.close()
    assert closed.is_set() and not alive()
    assert list(stream) == []
    stream.close()

    closed.clear()
    for _ in evener.stream(doubled, source()):
        break
    gc.collect()
    assert closed.wait(60)


def test_an_exception_of_the_loader_comes_in_its_turn_and_names_the_item(doubled):
    def load(path):
        if path == "c.png":
            raise ValueError("no picture")
        return floats(1)

    stream = evener.stream(doubled, ["a.png", "b.png", "c.png", "d.png"], load=load, prefetch=4)
    assert next(stream)["y"].tolist() == [2]
    assert next(stream)["y"].tolist() == [2]
    with pytest.raises(evener.StreamError, match="c.png: no picture") as raised:
        next(stream)
    assert raised.value.item == "c.png" and isinstance(raised.value.__cause__, ValueError)
    assert list(stream) == [] and not alive()


def test_an_exception_of_the_source_comes_in_its_turn(doubled):
    def source():
        yield floats(1)
        raise OSError("the camera is gone")

    stream = evener.stream(doubled, source())
    next(stream)
    with pytest.raises(evener.StreamError, match="the source: the camera is gone"):
        next(stream)


def test_a_run_that_fails_names_the_item(doubled):
    stream = evener.stream(doubled, ["good", "bad"], load=lambda item: floats(1) if item == "good" else floats(1).reshape(1, 1))
    next(stream)
    with pytest.raises(evener.StreamError, match="bad: .*the model wants") as raised:
        next(stream)
    assert raised.value.__cause__.status == evener.Status.INVALID_ARGUMENT


def test_an_end_while_an_item_is_loaded_waits_for_that(doubled):
    loading, go_on = threading.Event(), threading.Event()

    def load(_):
        loading.set()
        assert go_on.wait(60)
        return floats(1)

    stream = evener.stream(doubled, range(3), load=load)
    assert loading.wait(60)
    threading.Thread(target=go_on.set).start()
    stream.close()
    assert not alive()


def test_memory_is_flat_over_a_thousand_items(runtime, doubled):
    cpu = runtime.devices[0]
    item = numpy.ones(10_000, "float32")
    peaks, held = [], []
    tracemalloc.start()
    for i, outputs in enumerate(evener.stream(doubled, (item for _ in range(1000)), prefetch=3)):
        assert outputs["y"][0] == 2
        if i % 100 == 99:
            peaks.append(tracemalloc.get_traced_memory()[0])
            held.append(cpu.memory().by_class["tensors"])
    tracemalloc.stop()
    assert max(peaks) - min(peaks) < 8 * item.nbytes  # a thousand of them would be left otherwise
    assert max(held) <= 8 * item.nbytes


def test_pictures_of_a_folder_in_the_order_of_their_names(runtime, tmp_path):
    image = pytest.importorskip("PIL.Image")
    for i, name in enumerate(["b.png", "a.png", "c.PNG"]):
        image.new("RGB", (8, 6), (10 * i, 0, 255)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    for shape, planes in (([1, 3, 3, 4], lambda x: x[0, :, 0, 0]), (["n", 3, "h", "w"], lambda x: x[0, :, 0, 0]),
                          ([1, "h", "w", 3], lambda x: x[0, 0, 0])):
        session = runtime.session(tiny.identity("uint8", shape))
        results = list(evener.stream(session, tmp_path, with_items=True))
        assert [path.name for path, _ in results] == ["a.png", "b.png", "c.PNG"]
        assert [planes(outputs["y"]).tolist() for _, outputs in results] == [[10, 0, 255], [0, 0, 255], [20, 0, 255]]
    assert results[0][1]["y"].shape == (1, 6, 8, 3)
    session = runtime.session(tiny.identity("float32", [1, 3, 3, 4]))
    outputs = next(evener.stream(session, [tmp_path / "b.png"]))
    assert outputs["y"].shape == (1, 3, 3, 4) and outputs["y"].max() == 1
    (tmp_path / "bb.png").write_bytes(b"broken")
    with pytest.raises(evener.StreamError, match="bb.png"):
        list(evener.stream(session, tmp_path))
    with pytest.raises(evener.StreamError, match="give a load function"):
        list(evener.stream(runtime.session(tiny.scale()), tmp_path))


def test_pipelines_and_functions(doubled):
    class Pipeline:
        def submit(self, value):
            return doubled.submit({"x": value})

    assert [outputs["y"].tolist() for outputs in evener.stream(Pipeline(), [floats(1), floats(2)])] == [[2], [4]]
    threads = set()

    def double(value):
        threads.add(threading.get_ident())
        return 2 * value

    assert list(evener.stream(double, range(10), prefetch=5)) == list(range(0, 20, 2))
    assert len(threads) == 1


def test_options_reach_the_runs(doubled):
    with evener.Cancel() as cancel:
        cancel.cancel()
        with pytest.raises(evener.StreamError) as raised:
            list(evener.stream(doubled, [floats(1)], cancel=cancel))
    assert raised.value.__cause__.status == evener.Status.CANCELLED
    with pytest.raises(ValueError, match="prefetch"):
        evener.stream(doubled, [], prefetch=0)
