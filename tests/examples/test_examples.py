"""The examples in C and C++: each is built as a client builds it, without warnings, and run."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import evener
import numpy
import pytest
from onnx import helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "c").glob("*.c")) + sorted((ROOT / "examples" / "cpp").glob("*.cpp"))
LIBRARY = pathlib.Path(os.environ["EVENER_LIBRARY"])
DIGITS = pathlib.Path(os.environ.get("EVENER_MODELS", ROOT / "build" / "models")) / "digits.csv.gz"
LINKED = {"opencl_sharing": ["-l:libOpenCL.so.1"]}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """name -> path of the built example"""
    folder = tmp_path_factory.mktemp("examples")
    compilers = {".c": ["cc", "-std=c11"], ".cpp": ["c++", "-std=c++17"]}
    assert all(shutil.which(command[0]) for command in compilers.values()), "this test needs compilers of C and C++"
    built = {}
    for source in EXAMPLES:
        built[source.stem] = folder / source.stem
        options = ["-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{ROOT / 'include'}"]
        link = [str(LIBRARY), "-lpthread", *LINKED.get(source.stem, []), f"-Wl,-rpath,{LIBRARY.parent}", "-o", str(built[source.stem])]
        done = subprocess.run([*compilers[source.suffix], *options, str(source), *link], capture_output=True, text=True)
        assert done.returncode == 0, f"{source.name}: {done.stderr}"
    return built


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A classifier: convolution, pooling, a matrix product, softmax. Returns its path and its answer for the examples' ramp."""
    random = numpy.random.default_rng(3)
    conv = random.standard_normal((8, 3, 3, 3)).astype("float32")
    dense = random.standard_normal((8, 10)).astype("float32")
    nodes = [
        helper.make_node("Conv", ["x", "conv"], ["c"], name="conv_1", kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"], name="relu_1"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool_1"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat_1"),
        helper.make_node("MatMul", ["f", "dense"], ["g"], name="dense_1"),
        helper.make_node("Softmax", ["g"], ["y"], name="softmax_1"),
    ]
    graph = helper.make_graph(nodes, "classifier", [helper.make_tensor_value_info("x", 1, ["n", 3, 24, 24])],
                              [helper.make_tensor_value_info("y", 1, ["n", 10])],
                              [numpy_helper.from_array(conv, "conv"), numpy_helper.from_array(dense, "dense")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("model") / "classifier.onnx"
    path.write_bytes(proto.SerializeToString())
    ramp = ((numpy.arange(3 * 24 * 24) % 256).astype("float32") / 255).reshape(3, 24, 24)
    windows = numpy.lib.stride_tricks.sliding_window_view(ramp, (3, 3), axis=(1, 2))
    features = numpy.maximum(numpy.einsum("cyxij,ocij->oyx", windows, conv), 0).mean(axis=(1, 2))
    scores = features @ dense
    answer = numpy.exp(scores - scores.max())
    return path, answer / answer.sum()


def run(program, *arguments):
    preload = os.environ.get("EVN_SANITIZER_PRELOAD")  # a library with the sanitizers needs their runtime loaded before the program
    environment = {**os.environ, "LD_PRELOAD": preload} if preload else None
    return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, env=environment)


def test_every_example_has_a_test(programs):
    assert set(programs) == {"terse", "explained", "placement", "executor", "limits", "classify", "custom_operator", "opened", "async",
                             "epoll", "futures", "processes", "opencl_sharing", "train"}


def test_processes_share_the_items_and_the_weights(programs, model, tmp_path):
    path, answer = model
    configs = []
    for number, text in enumerate(["", "placement: {default: cpu}\n", "session: {concurrency: 1}\n"]):
        configs.append(tmp_path / f"{number}.yaml")
        configs[-1].write_text(text)
    alone = run(programs["processes"], path, tmp_path / "alone.cache", configs[0])
    assert (alone.returncode, alone.stderr) == (0, "") and alone.stdout.endswith("\n1 processes\n")
    rows = [line.split() for line in alone.stdout.splitlines()[:-1]]
    assert len(rows) == 16 and int(rows[0][0]) == int(numpy.argmax(answer))
    assert numpy.isclose(float(rows[0][1]), answer.max(), atol=2e-5)
    together = run(programs["processes"], path, tmp_path / "weights.cache", *configs)
    assert (together.returncode, together.stderr) == (0, "") and together.stdout.endswith("\n3 processes\n")
    assert together.stdout.splitlines()[:-1] == alone.stdout.splitlines()[:-1]
    assert (tmp_path / "weights.cache").stat().st_size > 0


def test_a_process_that_does_not_start_leaves_the_others(programs, model, tmp_path):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("")
    bad.write_text("placement: {default: nowhere}\n")
    done = run(programs["processes"], model[0], tmp_path / "weights.cache", bad, good)
    assert done.returncode == 0 and done.stdout.endswith("\n1 processes\n")
    assert "nowhere" in done.stderr and "bad.yaml does not start" in done.stderr
    done = run(programs["processes"], model[0], tmp_path / "weights.cache", bad)
    assert done.returncode == 1 and "no process is left" in done.stderr


@pytest.mark.parametrize("name", ["terse", "explained", "classify"])
def test_all_forms_print_the_largest_values(programs, model, name):
    path, answer = model
    done = run(programs[name], path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [int(index) for index, _ in lines] == list(numpy.argsort(-answer)[:5])
    assert numpy.allclose([float(value) for _, value in lines], numpy.sort(answer)[::-1][:5], atol=2e-5)


@pytest.mark.parametrize("name", ["terse", "explained", "classify"])
def test_open_dims_have_a_size_that_a_reader_of_lines_takes_or_the_one_that_is_given(programs, name, tmp_path):
    """As recognizers of text: the batch and the width are open, and a window has no place in a width of 1."""
    nodes = [helper.make_node("AveragePool", ["x"], ["p"], name="pool_1", kernel_shape=[1, 2], strides=[1, 2]),
             helper.make_node("ReduceMean", ["p"], ["y"], name="mean_1", axes=[1, 2], keepdims=0)]
    graph = helper.make_graph(nodes, "reader", [helper.make_tensor_value_info("x", 1, ["n", 3, 48, "w"])],
                              [helper.make_tensor_value_info("y", 1, ["n", "t"])])
    path = tmp_path / "reader.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    assert run(programs[name], path).returncode == 0
    for sizes, lines in (((), 5), ((2, 6), 5), ((1, 6), 3)):
        done = run(programs[name], path, *sizes)
        assert (done.returncode, done.stderr) == (0, "") and len(done.stdout.splitlines()) == lines
    done = run(programs[name], path, 1, 1)
    assert done.returncode == 1
    assert 'AveragePool "pool_1" has input 0 "x" [1,3,48,1]' in done.stderr


def test_a_missing_model_is_told_and_ends_with_an_error(programs, tmp_path):
    for name in ("terse", "explained", "placement", "executor", "classify"):
        done = run(programs[name], tmp_path / "none.onnx")
        assert done.returncode == 1 and "EVN_ERROR_IO" in done.stderr, name


def small_model(path, dtype, dims, output=1, op="Relu"):
    graph = helper.make_graph([helper.make_node(op, ["pixels"], ["y"], name="node_1")], "g",
                              [helper.make_tensor_value_info("pixels", dtype, dims)], [helper.make_tensor_value_info("y", output, None)])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


@pytest.mark.parametrize("name", ["terse", "explained", "executor", "classify", "futures", "custom_operator", "opened", "processes",
                                  "async", "epoll", "limits"])
def test_an_input_of_unknown_rank_or_another_type_is_named(programs, tmp_path, name):
    config = tmp_path / "empty.yaml"
    config.write_text("")
    before, after = {"opened": ([LIBRARY], []), "limits": ([], [0]), "processes": ([], [tmp_path / "m.cache", config])}.get(name, ([], []))
    models = [small_model(tmp_path / "rank.onnx", 1, None)]
    if name not in ("async", "epoll", "limits"):  # these run on zeros of any type
        models.append(small_model(tmp_path / "type.onnx", 7, [1, 3], 7, "Identity"))
    for path in models:
        done = run(programs[name], *before, path, *after)
        assert done.returncode == 1 and "input pixels " in done.stdout + done.stderr, path


def test_the_terse_program_names_the_node_of_an_error(programs, tmp_path):
    done = run(programs["terse"], small_model(tmp_path / "unknown.onnx", 1, [1, 3], 1, "NoSuchOperator"))
    assert done.returncode == 1 and done.stderr.endswith(" at node node_1\n")


def test_the_library_may_be_opened_while_a_program_runs(programs, model, tmp_path):
    path, answer = model
    assert "evn_" not in subprocess.run(["nm", "-u", str(programs["opened"])], check=True, capture_output=True, text=True).stdout
    done = run(programs["opened"], LIBRARY, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert numpy.allclose([float(line.split()[1]) for line in done.stdout.splitlines()], answer, atol=2e-5)
    absent = run(programs["opened"], tmp_path / "none.so", path)
    assert absent.returncode == 0 and absent.stdout.startswith("going on without")
    other = run(programs["opened"], "libc.so.6", path)
    assert other.returncode == 0 and other.stdout == "going on without libc.so.6: it is older than 0.2\n"


def test_asynchronous_runs_end_whether_finished_or_cancelled(programs, model):
    done = run(programs["async"], model[0])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the urgent run is done\n8 runs ended, finished or cancelled\n"


def test_an_event_loop_gets_each_run(programs, model):
    done = run(programs["epoll"], model[0])
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"run {i} has ended" for i in range(5)]


def test_futures_give_each_runs_output(programs, model):
    done = run(programs["futures"], model[0])
    assert (done.returncode, done.stderr) == (0, "")
    values = [float(line) for line in done.stdout.splitlines()]
    assert len(values) == 10 and values[0] == pytest.approx(0.1) and max(values) <= 1


def test_buffers_of_opencl_are_shared(programs, model):
    path, answer = model
    done = run(programs["opencl_sharing"], path)
    if done.returncode != 0 and os.environ.get("EVN_REQUIRE_OPENCL") != "1" and "clGet" in done.stderr:
        pytest.skip(f"there is no OpenCL device: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")
    index, value = done.stdout.split()
    assert int(index) == answer.argmax() and float(value) == pytest.approx(answer.max(), abs=2e-5)


def test_placement_explains_every_node(programs, model):
    done = run(programs["placement"], model[0])
    assert (done.returncode, done.stderr) == (0, "")
    for node in ("conv_1", "pool_1", "softmax_1"):
        assert node in done.stdout
    assert "host" in done.stdout


def test_placement_tells_the_nearest_key_of_a_wrong_one(programs, model, tmp_path):
    config = tmp_path / "wrong.yaml"
    config.write_text("version: 1\nplacment: {default: cpu}\n")
    done = run(programs["placement"], model[0], config)
    assert done.returncode == 1 and "EVN_ERROR_CONFIG" in done.stderr and "placement" in done.stderr


def test_executor_gives_the_same_bits(programs, model):
    done = run(programs["executor"], model[0])
    assert (done.returncode, done.stdout) == (0, "the executor was called for some operators; the results are the same bits\n")


def test_limits_names_the_bytes_and_leaves_nothing(programs, model):
    free = run(programs["limits"], model[0], 0)
    assert free.returncode == 0 and "ran with a peak of" in free.stdout and free.stdout.endswith("\n0 blocks left\n")
    capped = run(programs["limits"], model[0], 4000)
    assert capped.returncode == 1 and "over the cap:" in capped.stdout and capped.stdout.endswith("\n0 blocks left\n")


def folding_model(path, **attributes):
    node = helper.make_node("Fold", ["x"], ["y"], name="fold_1", domain="example", **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, ["n", 12])], [helper.make_tensor_value_info("y", 1, ["n", 12])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return path


def test_custom_operator_runs_in_a_model(programs, tmp_path):
    done = run(programs["custom_operator"], folding_model(tmp_path / "fold.onnx", low=-1.0, high=1.5))
    assert (done.returncode, done.stderr) == (0, "")
    *values, last = done.stdout.splitlines()
    assert [float(v) for v in values] == [0, -0.5, -1, -0.5, 0, 0.5, 1, 1.5, 1, 0.5, 0, -0.5] and last == "the operator ran 1 times"


def test_custom_operator_tells_what_is_wrong_at_which_node(programs, tmp_path):
    done = run(programs["custom_operator"], folding_model(tmp_path / "fold.onnx", low=2.0))
    assert done.returncode == 1 and "low is not below high" in done.stderr and "fold_1" in done.stderr


def test_pictures_of_a_folder_are_streamed(model, tmp_path):
    image = pytest.importorskip("PIL.Image")
    path, answer = model
    shutil.copyfile(path, tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text("models: {classifier: {path: m.onnx, warm: [{x: [1, 3, 24, 24]}]}}")
    ramp = (numpy.arange(3 * 24 * 24) % 256).astype("uint8").reshape(3, 24, 24).transpose(1, 2, 0)
    for name in ("b", "a"):
        image.fromarray(ramp).save(tmp_path / f"{name}.png")
    command = [sys.executable, str(ROOT / "examples" / "python" / "stream_images.py"), "--config", str(tmp_path / "c.yaml")]
    done = subprocess.run([*command, "--model", "classifier", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name}.png: {answer.argmax()} ({answer.max():.3f})" for name in "ab"]
    done = subprocess.run([*command, "--model", "nobody", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1 and "there are: classifier" in done.stderr


def test_a_start_in_python_runs_and_says_what_is_wrong(model, tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "python" / "classify.py")]
    done = subprocess.run([*command, str(model[0])], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("y (1, 10)\nlargest: ") and "conv_1" in done.stdout
    done = subprocess.run([*command, str(tmp_path / "none.onnx")], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("classify.py: ") and "none.onnx" in done.stderr
    assert subprocess.run(command, capture_output=True, text=True).stderr.count("usage:") == 1
    done = subprocess.run([*command, str(small_model(tmp_path / "rank.onnx", 1, None))], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "classify.py: input pixels has no rank\n")


@pytest.mark.skipif(not DIGITS.exists(), reason="needs the pictures of scripts/fetch_models.py digits")
def test_a_network_learns_digits_and_is_run(programs, tmp_path):
    subprocess.run([sys.executable, ROOT / "tests" / "training" / "make_digits_run.py", DIGITS, tmp_path], check=True)
    done = run(programs["train"], tmp_path, tmp_path / "trained.onnx")
    assert (done.returncode, done.stderr) == (0, "")
    epochs = [re.fullmatch(r"epoch (\d): loss ([\d.]+), (\d+) of 32 read rightly", line) for line in done.stdout.splitlines()[:-1]]
    losses, right = [float(epoch[2]) for epoch in epochs], [int(epoch[3]) for epoch in epochs]
    assert len(epochs) == 4 and losses[-1] < losses[0] and right[-1] > right[0]
    label, answer = re.fullmatch(r"the first of them is a (\d): it was read as (\d)", done.stdout.splitlines()[-1]).groups()
    logits = evener.Runtime(threads=1).session(tmp_path / "trained.onnx").run({"x": numpy.fromfile(tmp_path / "images.f32", "<f4").reshape(-1, 1, 28, 28)[-32:]})
    assert int(answer) == next(iter(logits.values()))[0].argmax() and int(label) == numpy.fromfile(tmp_path / "labels.i64", "<i8")[-32]
    absent = run(programs["train"], tmp_path / "none", tmp_path / "trained.onnx")
    assert absent.returncode == 1 and "there are no pictures" in absent.stderr
