"""Files of models: external data behind links, rows that are read when a run wants them, mapped files."""
import json
import os
import subprocess
import sys
import threading

import evener
import numpy
import onnx
import pytest
import tiny

ROWS, WIDTH = 4096, 64  # a table of 1 MiB


def table(rows=ROWS):
    return numpy.random.default_rng(0).standard_normal((rows, WIDTH)).astype("float32")


def external(name, dims, location, offset, length):
    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def embedding_nodes(inside):
    """y = Gather(t, i) @ w in the graph itself, or in the body of a Loop with one iteration, or of a Scan with one for each index."""
    node = onnx.helper.make_node

    def compute(index, output):
        return [node("Gather", ["t", index], ["g"]), node("MatMul", ["g", "w"], [output])]

    if inside == "Loop":
        body = onnx.helper.make_graph(compute("i", "p") + [node("Identity", ["before"], ["more"])], "body",
                                      [tiny.value("step", "int64", []), tiny.value("before", "bool", [])],
                                      [tiny.value("more", "bool", []), tiny.value("p", "float32", ["n", WIDTH])])
        return [node("Constant", [], ["one"], value_int=1), node("Constant", [], ["axes"], value_ints=[0]),
                node("Loop", ["one", ""], ["all"], body=body), node("Squeeze", ["all", "axes"], ["y"])]
    if inside == "Scan":
        body = onnx.helper.make_graph(compute("q", "p"), "body", [tiny.value("q", "int64", [])], [tiny.value("p", "float32", [WIDTH])])
        return [node("Scan", ["i"], ["y"], num_scan_inputs=1, body=body)]
    return compute("i", "y")


def embedding(weights, location="table.data", rows=None, inside=None):
    """A table of which rows are gathered, and a weight that is packed."""
    rows = ROWS if rows is None else rows
    graph = onnx.helper.make_graph(embedding_nodes(inside), "g", [tiny.value("i", "int64", ["n"])],
                                   [tiny.value("y", "float32", ["n", WIDTH])])
    graph.initializer.append(external("t", (rows, WIDTH), location, 0, rows * WIDTH * 4))
    graph.initializer.append(external("w", (WIDTH, WIDTH), location, rows * WIDTH * 4, WIDTH * WIDTH * 4))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def save(folder, name="model.onnx", data="table.data"):
    """The model with its data beside it; returns the table and the weight."""
    t, w = table(), table(WIDTH)
    (folder / data).write_bytes(t.tobytes() + w.tobytes())
    (folder / name).write_bytes(embedding(w, data))
    return t, w


def check(runtime, path, t, w, **options):
    session = runtime.session(runtime.model(path, **options))
    index = numpy.array([0, 1, 2, ROWS - 1, -1, 7, 7, 3], "int64")
    numpy.testing.assert_allclose(session.run({"i": index})["y"], t[index] @ w, rtol=1e-4, atol=1e-4)
    return session


def hugging_face(folder):
    """snapshots/REVISION/FILE -> ../../blobs/HASH"""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / "abc"
    blobs.mkdir(parents=True), snapshot.mkdir(parents=True)
    t, w = save(blobs, "0123", "4567")
    (blobs / "0123").write_bytes(embedding(w, "model.onnx_data"))
    (snapshot / "model.onnx").symlink_to("../../blobs/0123")
    (snapshot / "model.onnx_data").symlink_to("../../blobs/4567")
    return snapshot / "model.onnx", t, w


def kubernetes(folder):
    """FILE -> ..data/FILE, ..data -> ..2026"""
    version = folder / "..2026"
    version.mkdir(parents=True)
    t, w = save(version)
    (folder / "..data").symlink_to("..2026")
    for name in ("model.onnx", "table.data"):
        (folder / name).symlink_to(f"..data/{name}")
    return folder / "model.onnx", t, w


def hard_links(folder):
    store = folder / "store"
    store.mkdir(parents=True)
    t, w = save(store)
    for name in ("model.onnx", "table.data"):
        os.link(store / name, folder / name)
    return folder / "model.onnx", t, w


@pytest.mark.parametrize("layout", [hugging_face, kubernetes, hard_links])
def test_links_are_followed_beneath_allowed_roots_alone(tmp_path, runtime, layout):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    elsewhere.mkdir()
    path, t, w = layout(root)
    with pytest.raises(evener.Error) as refused:
        runtime.model(path)
    assert refused.value.status == evener.Status.INVALID_MODEL
    with pytest.raises(evener.Error, match="beneath none of the allowed roots") as refused:
        runtime.model(path, allowed_roots=[elsewhere])
    assert refused.value.status == evener.Status.INVALID_MODEL
    check(runtime, path, t, w, allowed_roots=[elsewhere, root])
    (tmp_path / "alias").symlink_to("root")
    check(runtime, path, t, w, allowed_roots=tmp_path / "alias")
    check(runtime, path, t, w, allowed_roots=[root], map_files=True)
    with evener.Runtime(config_text=f"files: {{allowed_roots: ['{root}']}}", threads=1, cache_dir="") as configured:
        check(configured, path, t, w)


def test_a_session_of_a_path_takes_the_options_of_its_model(tmp_path, runtime):
    path, t, w = hugging_face(tmp_path / "hub")
    index = numpy.array([0, 5], "int64")

    def is_mapped():
        with open("/proc/self/maps") as maps:
            return "/blobs/4567" in maps.read()

    with pytest.raises(evener.Error) as refused:
        runtime.session(path)
    assert refused.value.status == evener.Status.INVALID_MODEL
    with runtime.session(path, allowed_roots=tmp_path) as session:
        assert not is_mapped()
    with runtime.session(path, allowed_roots=[tmp_path], map_files=True) as session:
        numpy.testing.assert_allclose(session.run({"i": index})["y"], t[index] @ w, rtol=1e-4, atol=1e-4)
        assert is_mapped()
    with runtime.session(path.read_bytes(), external_dir=path.parent, allowed_roots=[tmp_path]) as session:
        numpy.testing.assert_allclose(session.run({"i": index})["y"], t[index] @ w, rtol=1e-4, atol=1e-4)
    with runtime.model(path, allowed_roots=[tmp_path]) as model:
        for options in (dict(external_dir=tmp_path), dict(allowed_roots=[tmp_path]), dict(map_files=True)):
            with pytest.raises(TypeError, match="this model is loaded"):
                runtime.session(model, **options)


def test_roots_of_a_configuration_file_begin_in_its_folder(tmp_path):
    path, t, w = hugging_face(tmp_path / "hub")
    config = tmp_path / "c.yaml"
    text = "models: {m: {path: hub/snapshots/abc/model.onnx}}\n"
    config.write_text(text)
    with evener.Runtime(config, 1, cache_dir="") as runtime, pytest.raises(evener.Error, match="goes through a link"):
        runtime.session("m")
    config.write_text(text + "files: {allowed_roots: hub}\n")
    with evener.Runtime(config, 1, cache_dir="") as runtime:
        numpy.testing.assert_allclose(runtime.session("m").run({"i": [5]})["y"], t[[5]] @ w, rtol=1e-4, atol=1e-4)
    config.write_text(text + "files: {allowed_roots: ['']}\n")
    with pytest.raises(evener.Error, match="must not be empty"):
        evener.Runtime(config, 1, cache_dir="")


def test_what_a_model_names_must_still_be_a_file_below_its_folder(tmp_path, runtime):
    folder = tmp_path / "model"
    folder.mkdir()
    _, w = save(folder)
    os.mkfifo(folder / "fifo")
    (folder / "device").symlink_to("/dev/zero")
    (folder / "sub").mkdir()
    (folder / "linked").symlink_to("sub")
    for location in ("fifo", "device", "linked", "../model/table.data", str(folder / "table.data"), "sub/../table.data"):
        (folder / "bad.onnx").write_bytes(embedding(w, location))
        with pytest.raises(evener.Error) as refused:
            runtime.model(folder / "bad.onnx", allowed_roots=["/"])
        assert refused.value.status == evener.Status.INVALID_MODEL, location
    for roots in ([""], [None]):
        with pytest.raises((evener.Error, TypeError)):
            runtime.model(folder / "model.onnx", allowed_roots=roots)


def test_a_root_that_does_not_exist_allows_nothing(tmp_path, runtime):
    path, t, w = hugging_face(tmp_path / "root")
    no_folder = tmp_path / "no_folder"
    no_folder.write_text("")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for missing in (tmp_path / "nowhere", no_folder):
        with pytest.raises(evener.Error, match="beneath none of the allowed roots") as refused:
            runtime.model(path, allowed_roots=[missing])
        assert refused.value.status == evener.Status.INVALID_MODEL
    check(runtime, path, t, w, allowed_roots=[tmp_path / "nowhere", no_folder, loop, tmp_path / "root"])
    with pytest.raises(evener.Error, match="cannot open allowed root") as refused:
        runtime.model(path, allowed_roots=[loop])
    assert refused.value.status == evener.Status.IO


def test_a_link_that_changes_meanwhile_leads_nowhere_else(tmp_path, runtime):
    """The file that is opened is looked at, not its name before: what is loaded lies beneath the root, or nothing is."""
    root = tmp_path / "root"
    root.mkdir()
    t, w = save(root)
    secret = tmp_path / "secret"
    secret.write_bytes(numpy.full(ROWS * WIDTH + WIDTH * WIDTH, 7, "float32").tobytes())
    (root / "table.data").rename(root / "inside")
    link, stop = root / "table.data", threading.Event()

    def swap():
        turn = 0
        while not stop.is_set():
            turn += 1
            new = root / f".new{turn % 2}"
            new.unlink(missing_ok=True)
            new.symlink_to("inside" if turn % 2 else secret)
            new.replace(link)

    link.symlink_to("inside")
    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        loaded = 0
        for _ in range(200):
            try:
                session = runtime.session(runtime.model(root / "model.onnx", allowed_roots=[root]))
            except evener.Error as error:
                assert error.status in (evener.Status.INVALID_MODEL, evener.Status.IO)
                continue
            loaded += 1
            numpy.testing.assert_allclose(session.run({"i": [3]})["y"], t[[3]] @ w, rtol=1e-4, atol=1e-4)
    finally:
        stop.set()
        swapping.join()


@pytest.mark.parametrize("how", ["cut", "cut and grown", "written over"])
def test_a_file_that_changes_under_runs_gives_a_status(tmp_path, runtime, how):
    t, w = save(tmp_path)
    session = check(runtime, tmp_path / "model.onnx", t, w)
    data = tmp_path / "table.data"
    size = data.stat().st_size
    os.utime(data, ns=(1, 1)) if how == "written over" else os.truncate(data, 4096)
    if how == "cut and grown":
        os.truncate(data, size)
    with pytest.raises(evener.Error, match="tensor 't': .*table.data") as failed:
        session.run({"i": numpy.arange(ROWS)})
    assert failed.value.status == evener.Status.IO


def test_a_file_is_cut_while_runs_read_it(tmp_path, runtime):
    t, w = save(tmp_path)
    session = check(runtime, tmp_path / "model.onnx", t, w)
    failures, index = [], numpy.random.default_rng(1).integers(0, ROWS, 4096)

    def run():
        while not failures:
            try:
                numpy.testing.assert_allclose(session.run({"i": index})["y"], t[index] @ w, rtol=1e-3, atol=1e-3)
            except evener.Error as error:
                failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    os.truncate(tmp_path / "table.data", 0)
    for thread in threads:
        thread.join()
    assert {error.status for error in failures} == {evener.Status.IO}


def test_a_file_that_is_removed_or_replaced_does_no_harm(tmp_path, runtime):
    t, w = save(tmp_path)
    session = check(runtime, tmp_path / "model.onnx", t, w)
    (tmp_path / "other").write_bytes(bytes(8))
    (tmp_path / "other").replace(tmp_path / "table.data")
    assert numpy.array_equal(session.run({"i": [9]})["y"], session.run({"i": [9]})["y"])
    numpy.testing.assert_allclose(session.run({"i": [9]})["y"], t[[9]] @ w, rtol=1e-4, atol=1e-4)
    (tmp_path / "table.data").unlink()
    again = runtime.session(session.model)
    numpy.testing.assert_allclose(again.run({"i": [9]})["y"], t[[9]] @ w, rtol=1e-4, atol=1e-4)


def test_rows_of_files_have_the_bits_of_tables_in_memory(tmp_path, runtime):
    t, w = save(tmp_path)
    inside = tiny.model([onnx.helper.make_node("Gather", ["t", "i"], ["g"]), onnx.helper.make_node("MatMul", ["g", "w"], ["y"])],
                        [tiny.value("i", "int64", ["n"])], [tiny.value("y", "float32", ["n", WIDTH])], {"t": t, "w": w})
    sessions = [runtime.session(runtime.model(inside)), runtime.session(runtime.model(tmp_path / "model.onnx")),
                runtime.session(runtime.model(tmp_path / "model.onnx", map_files=True))]
    for index in ([0], list(range(300)), [ROWS - 1, 0, -ROWS, -1], list(range(200, 0, -1)), []):
        outputs = [session.run({"i": numpy.array(index, "int64")})["y"] for session in sessions]
        assert numpy.array_equal(outputs[0], outputs[1]) and numpy.array_equal(outputs[0], outputs[2])
    for session in sessions:
        for wrong in (ROWS, -ROWS - 1):
            with pytest.raises(evener.Error) as refused:
                session.run({"i": [0, wrong]})
            assert refused.value.status == evener.Status.INVALID_ARGUMENT


@pytest.mark.parametrize("inside", ["Loop", "Scan"])
def test_bodies_read_rows_of_tables_that_other_nodes_want_whole(tmp_path, runtime, inside):
    t, w = table(), table(WIDTH)
    (tmp_path / "table.data").write_bytes(t.tobytes() + w.tobytes())
    model = onnx.load_from_string(embedding(w, inside=inside))
    model.graph.node.append(onnx.helper.make_node("Mul", ["t", "s"], ["m"]))
    model.graph.input.append(tiny.value("s", "float32", []))
    model.graph.output.append(tiny.value("m", "float32", [ROWS, WIDTH]))
    for name, one in (("rows", embedding(w, inside=inside)), ("both", model.SerializeToString())):
        (tmp_path / f"{name}.onnx").write_bytes(one)
    rows, both = (runtime.model(tmp_path / f"{name}.onnx") for name in ("rows", "both"))
    for _ in range(2):  # sessions of a model share its constants
        session = check(runtime, tmp_path / "rows.onnx", t, w)
        made = runtime.session(both).run({"i": [3, -1], "s": numpy.float32(2)})
        numpy.testing.assert_allclose(made["y"], t[[3, -1]] @ w, rtol=1e-4, atol=1e-4)
        assert numpy.array_equal(made["m"], 2 * t)
        numpy.testing.assert_allclose(runtime.session(rows).run({"i": [5]})["y"], t[[5]] @ w, rtol=1e-4, atol=1e-4)
    os.truncate(tmp_path / "table.data", 4096)
    with pytest.raises(evener.Error, match="tensor 't': .*table.data") as failed:
        session.run({"i": [ROWS - 1]})
    assert failed.value.status == evener.Status.IO


def test_a_table_is_read_whole_where_something_else_than_rows_is_wanted(tmp_path, runtime):
    t = table()
    (tmp_path / "t.data").write_bytes(t.tobytes())
    graph = onnx.helper.make_graph([onnx.helper.make_node("Gather", ["t", "i"], ["g"]), onnx.helper.make_node("Mul", ["t", "s"], ["m"])], "g",
                                   [tiny.value("i", "int64", ["n"]), tiny.value("s", "float32", [])],
                                   [tiny.value("g", "float32", ["n", WIDTH]), tiny.value("m", "float32", [ROWS, WIDTH])])
    graph.initializer.append(external("t", (ROWS, WIDTH), "t.data", 0, t.nbytes))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    for mapped in (False, True):
        session = runtime.session(runtime.model(tmp_path / "m.onnx", map_files=mapped))
        made = session.run({"i": [3, 1], "s": numpy.float32(2)})
        assert numpy.array_equal(made["g"], t[[3, 1]]) and numpy.array_equal(made["m"], 2 * t)


def test_more_files_than_stay_open(tmp_path, runtime):
    count, graph_inputs = 80, []
    graph = onnx.helper.make_graph([], "g", [tiny.value("x", "float32", [WIDTH])], [tiny.value("y0", "float32", [WIDTH])])
    parts = [numpy.full((512, WIDTH), number, "float32") for number in range(count)]
    previous = "x"
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.data").write_bytes(part.tobytes())
        graph.initializer.append(external(f"t{number}", part.shape, f"{number}.data", 0, part.nbytes))
        graph.node.append(onnx.helper.make_node("Gather", [f"t{number}", "zero"], [f"g{number}"]))
        graph.node.append(onnx.helper.make_node("Add", [previous, f"g{number}"], [previous := f"s{number}"]))
    graph.input.append(tiny.value("zero", "int64", []))
    graph.node.append(onnx.helper.make_node("Identity", [previous], ["y0"]))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    before = len(os.listdir("/proc/self/fd"))
    with runtime.model(tmp_path / "m.onnx") as loaded, runtime.session(loaded) as session:
        assert len(os.listdir("/proc/self/fd")) - before <= 70
        assert (session.run({"x": numpy.zeros(WIDTH, "float32"), "zero": numpy.int64(0)})["y0"] == sum(range(count))).all()


PROCESS = """
import json, sys
import evener, numpy
path, mapped = sys.argv[1], sys.argv[2] == "map"
def resident(kind):
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(fields[kind].split()[0]) << 10
with evener.Runtime(threads=1, cache_dir="") as runtime:
    before = resident("VmRSS")
    session = runtime.session(runtime.model(path, map_files=mapped))
    y = session.run({"i": numpy.array([0, 5, 99999], "int64")})["y"]
    memory = runtime.devices[0].memory()
    print(json.dumps({"grown": resident("VmRSS") - before, "peak": resident("VmHWM") - before, "anon": resident("RssAnon"), "y": y.tolist()}))
"""


@pytest.mark.parametrize("inside", [None, "Loop", "Scan"])
@pytest.mark.parametrize("how", ["read", "map"])
def test_a_large_table_stays_in_its_file(tmp_path, how, inside):
    """256 MiB, as a file with a hole: nothing of it is read but the rows that are wanted."""
    rows = 1 << 20
    w = table(WIDTH)
    with open(tmp_path / "table.data", "wb") as file:
        file.seek(rows * WIDTH * 4)
        file.write(w.tobytes())
        file.seek(5 * WIDTH * 4)
        file.write(numpy.ones(WIDTH, "float32").tobytes())
    (tmp_path / "model.onnx").write_bytes(embedding(w, rows=rows, inside=inside))
    done = subprocess.run([sys.executable, "-c", PROCESS, str(tmp_path / "model.onnx"), how], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    most = rows * WIDTH * 4 // 8  # code that is paged in counts too, and a sanitizer's is large
    assert told["grown"] < most and told["peak"] < most, told
    numpy.testing.assert_allclose(told["y"][1], w.sum(axis=0), rtol=1e-4, atol=1e-4)
    assert not numpy.any(told["y"][0]) and not numpy.any(told["y"][2])


def test_weights_of_external_data_are_packed_while_they_are_read(tmp_path):
    """Eight weights of 16 MiB: at its peak the process holds the packed ones and little else."""
    side, count = 2048, 8
    graph = onnx.helper.make_graph([], "g", [tiny.value("x0", "float32", ["n", side])], [tiny.value(f"x{count}", "float32", ["n", side])])
    with open(tmp_path / "w.data", "wb") as file:
        for number in range(count):
            graph.initializer.append(external(f"w{number}", (side, side), "w.data", file.tell(), side * side * 4))
            graph.node.append(onnx.helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"x{number + 1}"]))
            file.write(numpy.full((side, side), number, "float32").tobytes())
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    program = """
import evener, sys
def most():
    return int(dict(line.split(":", 1) for line in open("/proc/self/status"))["VmHWM"].split()[0]) << 10
with evener.Runtime(threads=1, cache_dir="") as runtime:
    before = most()
    session = runtime.session(runtime.model(sys.argv[1]))
    print(most() - before)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "model.onnx")], capture_output=True, text=True, check=True)
    assert int(done.stdout) < (count * side * side * 4) * 5 // 4
