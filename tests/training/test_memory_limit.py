"""memory_limit: what does not fit is computed again in the backward pass, and losses, gradients, parameters and statistics have the bits that they have
without a limit."""
import os

import evener
import large_nets
import nets
import numpy as np
import onnx
import pytest

NO_LIMIT = 1 << 50  # above any, so that describe() tells of the memory


@pytest.fixture(scope="module")
def runtime():
    with evener.Runtime(threads=2) as made:
        yield made


def memory(trainer):
    return trainer.describe("dict")["memory"]


def trained(runtime, model, batches, path, limit=NO_LIMIT, **options):
    """All that a trainer has to show, and its memory."""
    trainer = evener.Trainer(runtime, model, memory_limit=limit, **{"optimizer": "adam", "learning_rate": 1e-3, **options})
    losses = [trainer.step(*batch).loss for batch in batches]
    shown = {"losses": np.array(losses), **{f"gradient {name}": value for name, value in trainer.gradients.items()}}
    trainer.finish(path)
    for t in onnx.load(path).graph.initializer:
        shown[f"model {t.name}"] = onnx.numpy_helper.to_array(t)
    return shown, memory(trainer)


def expect_same_bits(got, want):
    assert got.keys() == want.keys()
    different = [name for name in want if got[name].tobytes() != want[name].tobytes()]
    assert not different


def least_limit(runtime, model, batch, **options):
    with pytest.raises(evener.Error) as refused:
        evener.Trainer(runtime, model, memory_limit=1, **options).step(*batch)
    assert refused.value.status.name == "LIMIT" and "above the limit of 1" in str(refused.value)
    return refused.value.bytes_requested


@pytest.mark.parametrize("device", ["cpu", "opencl"])
@pytest.mark.parametrize("name", nets.NETS)
def test_bits_are_those_without_a_limit(name, device, runtime, tmp_path):
    try:
        runtime.device(device)
    except evener.Error:
        assert not os.environ.get("EVN_REQUIRE_OPENCL")
        pytest.skip("this machine has no OpenCL device")
    model = nets.NETS[name]()[0].SerializeToString()
    batches = list(nets.batches(name, 3))
    want, free = trained(runtime, model, batches, tmp_path / "free.onnx", device=device)
    assert free["recomputed_steps"] == 0 and free["activation_bytes"] == free["unlimited_bytes"]
    least = least_limit(runtime, model, batches[0], device=device)
    assert least <= free["unlimited_bytes"]
    again = False
    for share in (0.0, 0.3, 0.6, 0.9) if device == "cpu" else (0.0, 0.6):
        limit = least + int(share * (free["unlimited_bytes"] - least))
        got, limited = trained(runtime, model, batches, tmp_path / "limited.onnx", limit, device=device)
        expect_same_bits(got, want)
        assert limited["activation_bytes"] <= limit and limited["unlimited_bytes"] == free["unlimited_bytes"]
        again = again or limited["recomputed_steps"] > 0
    assert again or name in ("mlp", "recurrent")  # which have nothing that is worth it


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_40_percent_of_the_activations_are_enough(name, runtime, tmp_path):
    model, _, classes = large_nets.NETWORKS[name]()
    model, batch = model.SerializeToString(), large_nets.batch_of(model, 2, classes)
    want, free = trained(runtime, model, [batch], tmp_path / "free.onnx")
    limit = free["activation_bytes"] * 2 // 5
    got, limited = trained(runtime, model, [batch], tmp_path / "limited.onnx", limit)
    expect_same_bits(got, want)
    assert limited["activation_bytes"] <= limit and 0 < limited["recomputed_steps"] < limited["steps"]


def dropping():
    b = nets.Builder(10)
    x = "x"
    for i in range(5):
        x = b.op("Dropout", b.op("Relu", b.conv(x, f"conv{i}", (8, 3 if i == 0 else 8, 3, 3), pads=[1] * 4)), b.op("Constant", value_float=0.3))
    x = b.op("Flatten", b.op("GlobalAveragePool", x))
    return b.model(b.linear(x, "fc", 8, 4), nets.COLOR, [4]).SerializeToString()


def images(count, classes):
    random = np.random.default_rng(count)
    return {"x": random.standard_normal((count, 3, 16, 16)).astype(np.float32)}, random.integers(0, classes, count)


def test_dropout_drops_the_same_elements_again(runtime, tmp_path):
    batches = [images(8, 4)] * 3
    want, free = trained(runtime, dropping(), batches, tmp_path / "free.onnx", seed=5)
    assert len(set(want["losses"])) == 3
    got, limited = trained(runtime, dropping(), batches, tmp_path / "limited.onnx", least_limit(runtime, dropping(), batches[0]), seed=5)
    expect_same_bits(got, want)
    assert limited["recomputed_steps"] > 0


def test_each_batch_size_has_a_plan_of_its_own(runtime, tmp_path):
    model = nets.inverted()[0].SerializeToString()
    counts = (1, 8, 3, 8, 5, 2, 7, 4, 6, 1, 8)
    least = max(least_limit(runtime, model, images(count, 6)) for count in set(counts))
    batches = [images(count, 6) for count in counts]
    want, _ = trained(runtime, model, batches, tmp_path / "free.onnx")
    got, limited = trained(runtime, model, batches, tmp_path / "limited.onnx", least)
    expect_same_bits(got, want)
    assert limited["recomputed_steps"] > 0
    trainer = evener.Trainer(runtime, model, memory_limit=least)
    trainer.step(*images(1, 6))
    assert memory(trainer)["recomputed_steps"] == 0
    before = trainer.parameters
    with pytest.raises(evener.Error, match="LIMIT"):
        trainer.step(*images(32, 6))
    assert all((trainer.parameters[name] == before[name]).all() for name in before)
    assert trainer.step(*images(8, 6)).step == 2


def test_accumulation_and_bfloat16(runtime, tmp_path):
    model = nets.residual()[0].SerializeToString()
    batches = list(nets.batches("residual", 4))
    least = least_limit(runtime, model, batches[0])
    for options in (dict(accumulate=2), dict(precision="bfloat16")):
        want, free = trained(runtime, model, batches, tmp_path / "free.onnx", **options)
        got, limited = trained(runtime, model, batches, tmp_path / "limited.onnx", max(least, free["activation_bytes"] * 9 // 10), **options)
        assert limited["recomputed_steps"] > 0
        expect_same_bits(got, want)


def test_bits_do_not_depend_on_the_number_of_threads(tmp_path):
    seen = []
    for threads in (1, 2, 5):
        with evener.Runtime(threads=threads) as runtime:
            model = nets.inverted()[0].SerializeToString()
            limit = least_limit(runtime, model, images(4, 6))  # scratch is by thread
            seen.append(trained(runtime, model, [images(4, 6)] * 2, tmp_path / "a.onnx", limit)[0])
    for other in seen[1:]:
        expect_same_bits(other, seen[0])


def test_a_trainer_says_what_it_computes_again(runtime):
    model = nets.inverted()[0].SerializeToString()
    limit = least_limit(runtime, model, images(8, 6))
    trainer = evener.Trainer(runtime, model, memory_limit=limit)
    assert memory(trainer) == dict(limit=limit, activation_bytes=0, unlimited_bytes=0, kept_values=0, recomputed_values=0, recomputed_steps=0, steps=0)
    assert f"activations: at most {limit} bytes\n" in trainer.describe()
    trainer.step(*images(8, 6))
    m = memory(trainer)
    assert 0 < m["recomputed_values"] and 0 < m["recomputed_steps"] < m["steps"] and m["kept_values"] > 0
    assert f"{m['recomputed_values']} computed again by {m['recomputed_steps']} of {m['steps']} steps" in trainer.describe()
    assert "memory" not in evener.Trainer(runtime, model).describe("dict")
