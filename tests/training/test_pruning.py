"""Pruning of channels: the model that comes back is smaller, and computes what the one with zeros in their place does."""
import json
import os
import pathlib

import evener
import nets
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper, shape_inference

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = pathlib.Path(os.environ.get("EVENER_MODELS", ROOT / "build/models"))


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=2) as made:
        yield made


def grouped():
    """Grouped convolutions, of which whole groups leave, one of them with two channels for each that it reads."""
    b = nets.Builder(11)
    x = b.op("Relu", b.conv("x", "stem", (12, 3, 3, 3), pads=[1] * 4))
    y = b.op("Relu", b.conv(x, "groups", (24, 3, 3, 3), pads=[1] * 4, group=4))
    y = b.op("Relu", b.conv(y, "twice", (48, 1, 3, 3), pads=[1] * 4, group=24))
    x = b.op("Add", x, b.conv(y, "back", (12, 48, 1, 1)))
    return b.model(b.linear(b.op("Flatten", b.op("GlobalAveragePool", x)), "fc", 12, 6), nets.COLOR, [6]), [6]


def reshaped():
    """Flattened by numbers that count channels, as exporters write them; one constant is the target of two nodes."""
    b = nets.Builder(12)
    x = b.op("PRelu", b.conv("x", "a", (8, 3, 3, 3), pads=[1] * 4, strides=[2, 2]), b.weight("slopes", 8, 1, 1))
    y = b.op("Pad", b.conv(x, "b", (8, 8, 3, 3)), b.ints("pads", [0, 0, 1, 1, 0, 0, 1, 1]))
    flat = b.ints("flat", [-1, 512])
    one = b.linear(b.op("Reshape", x, flat), "one", 512, 6)
    two = b.op("MatMul", b.op("Reshape", y, flat), b.weight("two", 512, 6))
    return b.model(b.op("Add", one, two), nets.COLOR, [6]), [6]


def gated():
    """A gate of matrix products over squeezed channels, normalizations over places, Concat, Resize, channels last."""
    b = nets.Builder(13)
    x = b.op("InstanceNormalization", b.conv("x", "a", (10, 3, 3, 3), pads=[1] * 4), b.weight("in.w", 10), b.weight("in.b", 10))
    gate = b.op("Sigmoid", b.linear(b.op("ReduceMean", x, axes=[2, 3], keepdims=0), "gate", 10, 10))
    x = b.op("Mul", x, b.op("Reshape", gate, b.ints("wide", [0, 10, 1, 1])))
    y = b.conv(b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), "b", (6, 10, 3, 3), pads=[1] * 4)
    b.weights["factors"] = np.array([1, 1, 2, 2], np.float32)
    x = b.op("Concat", x, b.op("Resize", y, "", "factors", mode="nearest"), axis=1)
    x = b.op("Relu", b.conv(x, "c", (9, 16, 3, 3), pads=[1] * 4, group=1))
    x = b.op("Add", b.op("MatMul", b.op("Transpose", x, perm=[0, 2, 3, 1]), b.weight("last", 9, 6)), b.weight("last.b", 6))
    return b.model(b.op("ReduceMean", x, axes=[1, 2], keepdims=0), nets.COLOR, [6]), [6]


NETS = {**{name: nets.NETS[name] for name in ("simple_cnn", "residual", "inverted", "unet")}, **{net.__name__: net for net in (grouped, reshaped, gated)}}


def batch_of(name, count=1, size=4):
    model, classes = NETS[name]()
    random = np.random.default_rng(7)
    dims = [size, *(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:])]
    for _ in range(count):
        yield {"x": random.standard_normal(dims).astype(np.float32)}, random.integers(0, classes[0], [size, *classes[1:]])


def checkpoint_tensors(path):
    """The tensors of a file of safetensors."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    return {name: np.frombuffer(data[8 + size:], np.float32, (row["data_offsets"][1] - row["data_offsets"][0]) // 4, row["data_offsets"][0]).reshape(row["shape"])
            for name, row in header.items() if name != "__metadata__"}


def masked(model, trainer, path):
    """The whole model, with what the trainer has learned."""
    trainer.save(path)
    learned = {name.split("/", 1)[1]: value for name, value in checkpoint_tensors(path).items() if name.startswith(("parameter/", "statistic/"))}
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    names = {t.name for t in whole.graph.initializer}
    assert learned.keys() <= names
    for t in whole.graph.initializer:
        if t.name in learned:
            t.CopyFrom(numpy_helper.from_array(learned[t.name], t.name))
    return whole


def output(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def products(model):
    """Multiplications of convolutions and matrices, for a batch of one."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*inferred.input, *inferred.value_info, *inferred.output)}
    weights = {t.name: list(t.dims) for t in model.graph.initializer}
    count = 0
    for node in inferred.node:
        made = int(np.prod(shapes[node.output[0]]))
        if node.op_type == "Conv":
            count += made * int(np.prod(weights[node.input[1]][1:]))
        elif node.op_type == "ConvTranspose":
            count += int(np.prod(shapes[node.input[0]])) * int(np.prod(weights[node.input[1]][1:]))
        elif node.op_type in ("Gemm", "MatMul"):
            count += made * shapes[node.input[0]][-1]
    return count


def check(model, trainer, inputs, folder, share):
    """Of the model that a trainer gives back: whether it is valid, smaller, and says the same as the one with zeros."""
    trainer.finish(folder / "pruned.onnx")
    pruned = onnx.load(folder / "pruned.onnx")
    onnx.checker.check_model(pruned, full_check=True)
    whole = masked(model, trainer, folder / "state.safetensors")
    expected, got = output(whole, inputs), output(pruned, inputs)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    session = evener.Runtime(threads=2).session(folder / "pruned.onnx")
    np.testing.assert_allclose(next(iter(session.run(inputs).values())), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert pruned.ByteSize() < whole.ByteSize() * share and products(pruned) < products(whole) * share
    return pruned


@pytest.mark.parametrize("name", NETS)
def test_the_small_model_computes_what_the_one_with_zeros_does(name, runtime, tmp_path):
    model, _ = NETS[name]()
    trainer = evener.Trainer(runtime, model.SerializeToString(), optimizer="adamw", weight_decay=0.01, learning_rate=3e-3, prune_share=0.5, prune_begin=2, prune_steps=4)
    for inputs, labels in batch_of(name, 9):
        assert not trainer.step(inputs, labels).skipped
    before = {t.name: tuple(t.dims) for t in model.graph.initializer}
    pruned = check(model, trainer, inputs, tmp_path, 0.95)
    after = {t.name: tuple(t.dims) for t in pruned.graph.initializer}
    described = trainer.describe("dict")["pruning"]
    assert all(row["now"] == row["at_end"] < row["channels"] for row in described["groups"])
    assert [row["reason"] for row in described["others"]] == (["they reach the output conv10"] if name == "unet" else [])
    smaller = {n for n in before if before[n] != after.get(n)}
    assert smaller >= {n for n in before if len(before[n]) == 4}
    # Half of the channels, in every group.
    assert {round(row["at_end"] / row["channels"], 2) for row in described["groups"]} <= {0.5, 0.56}


def test_whole_groups_leave(runtime, tmp_path):
    model, _ = grouped()
    trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.01, prune_share=0.5)
    inputs, labels = next(batch_of("grouped"))
    trainer.step(inputs, labels)
    pruned = check(model, trainer, inputs, tmp_path, 0.9)
    assert {n.name: next(a.i for a in n.attribute if a.name == "group") for n in pruned.graph.node if any(a.name == "group" for a in n.attribute)} == {"conv3": 2, "conv5": 12}
    assert {t.name: list(t.dims) for t in pruned.graph.initializer if t.name in ("stem.w", "groups.w", "twice.w", "back.w")} == {
        "stem.w": [6, 3, 3, 3], "groups.w": [12, 3, 3, 3], "twice.w": [24, 1, 3, 3], "back.w": [6, 24, 1, 1]}


def test_numbers_of_reshapes_follow(runtime, tmp_path):
    model, _ = reshaped()
    trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=0.01, prune_share=0.4)
    inputs, labels = next(batch_of("reshaped"))
    trainer.step(inputs, labels)
    pruned = check(model, trainer, inputs, tmp_path, 0.95)
    values = {t.name: numpy_helper.to_array(t) for t in pruned.graph.initializer}
    assert [values[n.input[1]].tolist() for n in pruned.graph.node if n.op_type == "Reshape"] == [[-1, 320]] * 2


@pytest.mark.skipif(not (MODELS / "mobilenet_v2.onnx").exists(), reason="the model is not fetched")
@pytest.mark.skipif(bool(os.environ.get("EVN_SANITIZER_PRELOAD")), reason="takes minutes with the sanitizers: the release build runs it")
def test_mobilenet_loses_half_of_its_channels(runtime, tmp_path):
    model = onnx.load(MODELS / "mobilenet_v2.onnx")
    trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=1e-4, momentum=0.9, prune_share=0.5, prune_steps=2)
    random = np.random.default_rng(5)
    for _ in range(2):
        inputs = {"input": random.standard_normal((1, 3, 224, 224)).astype(np.float32)}
        trainer.step(inputs, np.array([7]))
    assert trainer.describe("dict")["pruning"]["others"] == []
    check(model, trainer, inputs, tmp_path, 0.5)


def test_channels_leave_by_a_cubic_schedule_and_stay_away(runtime, tmp_path):
    model, _ = NETS["simple_cnn"]()
    trainer = evener.Trainer(runtime, model.SerializeToString(), optimizer="adam", prune_share=0.5, prune_begin=3, prune_steps=8)
    seen, zeros = [], set()
    for inputs, labels in batch_of("simple_cnn", 14, size=2):
        trainer.step(inputs, labels)
        seen.append([row["now"] for row in trainer.describe("dict")["pruning"]["groups"]])
        now = {c for c in range(64) if not trainer.parameters["conv2.w"][c].any()}
        assert zeros <= now and len(now) == 64 - seen[-1][1]
        zeros = now
    at = [min(1, max(0, (step - 3) / 8)) for step in range(1, 15)]
    assert seen == [[channels - int((1 - (1 - x) ** 3) * channels / 2 + 1e-9) for channels in (32, 64)] for x in at]
    trainer.save(tmp_path / "state.safetensors")
    saved = checkpoint_tensors(tmp_path / "state.safetensors")
    for kind in ("parameter", "optimizer_state0", "optimizer_state1"):
        assert not saved[f"{kind}/conv2.w"][sorted(zeros)].any() and not saved[f"{kind}/conv2.b"][sorted(zeros)].any()
        assert not saved[f"{kind}/fc1.w"].reshape(128, 64, 49)[:, sorted(zeros)].any()


def test_the_smallest_norms_leave(runtime):
    model, _ = NETS["simple_cnn"]()
    norms = {name: np.linalg.norm(numpy_helper.to_array(t).reshape(t.dims[0], -1), axis=1) for t in model.graph.initializer for name in [t.name] if name.startswith("conv") and len(t.dims) == 4}
    trainer = evener.Trainer(runtime, model.SerializeToString(), learning_rate=1e-12, prune_share=0.25)
    trainer.step(*next(batch_of("simple_cnn")))
    for name, of_channels in norms.items():
        gone = {c for c in range(len(of_channels)) if not trainer.parameters[name][c].any()}
        assert gone == set(np.argsort(of_channels)[:len(of_channels) // 4].tolist())


def test_channels_of_a_checkpoint_stay_away(runtime, tmp_path):
    options = dict(optimizer="adamw", accumulate=2, prune_share=0.5, prune_begin=1, prune_steps=3)
    batches = list(batch_of("residual", 12))
    whole = evener.Trainer(runtime, NETS["residual"]()[0].SerializeToString(), **options)
    for at, (inputs, labels) in enumerate(batches):
        if at == 5:
            whole.save(tmp_path / "state.safetensors")
            some = [row["now"] for row in whole.describe("dict")["pruning"]["groups"]]
        whole.step(inputs, labels)
    later = evener.Trainer(runtime, NETS["residual"]()[0].SerializeToString(), **options)
    later.restore(tmp_path / "state.safetensors")
    assert [row["now"] for row in later.describe("dict")["pruning"]["groups"]] == some != [8, 8, 12]
    for inputs, labels in batches[5:]:
        later.step(inputs, labels)
    whole.finish(tmp_path / "a.onnx")
    later.finish(tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    with pytest.raises(evener.Error, match="checkpoint"):
        evener.Trainer(runtime, NETS["residual"]()[0].SerializeToString(), optimizer="adamw", accumulate=2).restore(tmp_path / "state.safetensors")


def test_bits_do_not_depend_on_the_number_of_threads(tmp_path):
    for threads in (1, 2, 5):
        with evener.Runtime(threads=threads) as runtime:
            trainer = evener.Trainer(runtime, NETS["residual"]()[0].SerializeToString(), optimizer="adam", prune_share=0.5, prune_steps=3)
            for inputs, labels in batch_of("residual", 5):
                trainer.step(inputs, labels)
            trainer.finish(tmp_path / f"{threads}.onnx")
    assert len({(tmp_path / f"{threads}.onnx").read_bytes() for threads in (1, 2, 5)}) == 1


def test_replicas_lose_their_channels(runtime, tmp_path):
    model, _ = NETS["residual"]()
    trainer = evener.Trainer(runtime, model.SerializeToString(), replicas=("cpu", "cpu"), learning_rate=1e-3, momentum=0.9, prune_share=0.5, prune_steps=2)
    for inputs, labels in batch_of("residual", 4):
        trainer.step(inputs, labels)
    check(model, trainer, inputs, tmp_path, 0.9)


@pytest.mark.parametrize("device", ["opencl", "opencl,cpu"])
@pytest.mark.parametrize("name", ["residual", "inverted"])
def test_channels_on_an_opencl_device_leave(name, device, tmp_path):
    with evener.Runtime(threads=2) as runtime:
        try:
            runtime.device("opencl")
        except evener.Error:
            assert not os.environ.get("EVN_REQUIRE_OPENCL")
            pytest.skip("this machine has no OpenCL device")
        model, _ = NETS[name]()
        trainer = evener.Trainer(runtime, model.SerializeToString(), optimizer="adam", learning_rate=1e-3, device=device, prune_share=0.5, prune_steps=2)
        for inputs, labels in batch_of(name, 4):
            trainer.step(inputs, labels)
        check(model, trainer, inputs, tmp_path, 0.95)


def test_a_step_that_is_skipped_prunes_nothing(runtime):
    trainer = evener.Trainer(runtime, NETS["simple_cnn"]()[0].SerializeToString(), prune_share=0.5)
    inputs, labels = next(batch_of("simple_cnn"))
    assert trainer.step({"x": inputs["x"] * np.float32(np.nan)}, labels).skipped
    assert [row["now"] for row in trainer.describe("dict")["pruning"]["groups"]] == [32, 64]
    trainer.step(inputs, labels)
    assert [row["now"] for row in trainer.describe("dict")["pruning"]["groups"]] == [16, 32]
    assert "Conv conv1: 32 channels, now 16, at the end 16" in trainer.describe()


def refusal(runtime, model, **options):
    with pytest.raises(evener.Error) as refused:
        evener.Trainer(runtime, model.SerializeToString(), **options)
    return refused.value.status.name, str(refused.value)


def test_what_cannot_be_pruned_is_said(runtime):
    cnn, mlp = NETS["simple_cnn"]()[0], nets.mlp()[0]
    assert refusal(runtime, mlp, prune_share=0.5) == ("UNSUPPORTED", "UNSUPPORTED: prune_share: the model has no convolution with constant filters")
    b = nets.Builder(14)
    normalized = b.op("LayerNormalization", b.conv("x", "a", (6, 3, 3, 3)), b.weight("ln.w", 6, 14, 14), b.weight("ln.b", 6, 14, 14), axis=1)
    layer = b.model(b.linear(b.op("Flatten", normalized), "fc", 6 * 14 * 14, 4), nets.COLOR, [4])
    status, message = refusal(runtime, layer, prune_share=0.5)
    assert status == "UNSUPPORTED" and "LayerNormalization" in message and "Conv conv1" in message
    b = nets.Builder(15)
    bare = b.model(b.op("ReduceMean", b.conv("x", "a", (6, 3, 3, 3)), axes=[2, 3], keepdims=0), nets.COLOR, [6])
    assert "reach the output" in refusal(runtime, bare, prune_share=0.5)[1]
    status, message = refusal(runtime, cnn, prune_share=0.5, frozen=["conv?.w"])
    assert status == "UNSUPPORTED" and "does not learn" in message
    assert refusal(runtime, cnn, prune_share=0.01)[0] == "INVALID_ARGUMENT"
    for options in (dict(prune_begin=1), dict(prune_steps=1), dict(prune_share=1.0), dict(prune_share=-0.1), dict(prune_share=float("nan"))):
        assert refusal(runtime, cnn, **options)[0] == "INVALID_ARGUMENT"
    # One that is frozen keeps its channels, the other loses its own.
    trainer = evener.Trainer(runtime, cnn.SerializeToString(), prune_share=0.5, frozen=["conv1.w"])
    described = trainer.describe("dict")["pruning"]
    assert [row["name"] for row in described["groups"]] == ["Conv conv4"] and described["others"] == [{"name": "Conv conv1", "channels": 32, "reason": "conv1.w does not learn"}]


def test_statistics_may_be_frozen(runtime, tmp_path):
    model, _ = NETS["residual"]()
    norms = [node.name for node in model.graph.node if node.op_type == "BatchNormalization"]
    trainer = evener.Trainer(runtime, model.SerializeToString(), frozen=norms, learning_rate=1e-3, prune_share=0.5)
    for inputs, labels in batch_of("residual", 3):
        trainer.step(inputs, labels)
    check(model, trainer, inputs, tmp_path, 0.9)


def test_images_without_a_known_size_are_flattened_all_the_same(runtime, tmp_path):
    model, _ = NETS["simple_cnn"]()
    for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim[2:], "hw"):
        dim.dim_param = name
    trainer = evener.Trainer(runtime, model.SerializeToString(), prune_share=0.5)
    inputs, labels = next(batch_of("simple_cnn"))
    trainer.step(inputs, labels)
    trainer.finish(tmp_path / "pruned.onnx")
    assert {tuple(t.dims) for t in onnx.load(tmp_path / "pruned.onnx").graph.initializer if t.name == "fc1.w"} == {(128, 1568)}
    expected = output(masked(model, trainer, tmp_path / "state.safetensors"), inputs)
    np.testing.assert_allclose(output(onnx.load(tmp_path / "pruned.onnx"), inputs), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
