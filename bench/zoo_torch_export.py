"""Exports the networks of bench/zoo_torch_models.py with torch.onnx.export, each in a process of its own, into a folder that keeps
them.

A network's files are NAME.EXPORTER.onnx (and its .data), its inputs NAME.EXPORTER.npz and what is known of it
NAME.EXPORTER.json: the opset, how many nodes, the seconds that the export took; or, where it cannot be exported, the reason.
"""
import json
import multiprocessing
import os
import pathlib
import sys
import time
import warnings
import zlib

EXPORTERS = {"script": False, "dynamo": True}
LIMIT = 300  # seconds of an export


def stem_of(name, exporter, folder):
    return pathlib.Path(folder) / f"{name.replace('/', '.')}.{exporter}"


def count_nodes(graph):
    """With those of inner graphs."""
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return len(graph.node) + sum(map(count_nodes, inner))


def vary(module):
    """Gives parameters that are one number throughout (zeros, ones, the 1e-6 of layer scales) different values."""
    import torch
    for parameter in module.parameters():
        if parameter.is_floating_point() and parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
            size = parameter.flatten()[0].abs().item()
            if size < 1e-2:
                parameter.copy_(torch.randn_like(parameter) * 0.05)
            else:
                parameter.mul_(1 + 0.1 * torch.randn_like(parameter))


def calibrate(module, inputs):
    """Gives batch normalizations the statistics of one run, for otherwise values of a deep network vanish or overflow."""
    import torch

    def keep(normalization, given):
        x = given[0]
        axes = [axis for axis in range(x.ndim) if axis != 1]
        if x.numel() > x.shape[1]:
            normalization.running_mean.copy_(x.mean(axes))
            normalization.running_var.copy_(x.var(axes).clamp_min(1e-6))

    hooks = [part.register_forward_pre_hook(keep) for part in module.modules()
             if "BatchNorm" in type(part).__name__ and isinstance(getattr(part, "running_mean", None), torch.Tensor)]
    if hooks:
        module(*inputs)
    for hook in hooks:
        hook.remove()


def make_file(network, exporter, stem, eager=False):
    import numpy
    import onnx
    import torch
    warnings.filterwarnings("ignore")
    torch.backends.mha.set_fastpath_enabled(False)  # it is an operator of PyTorch alone
    torch.manual_seed(zlib.crc32(network.name.encode()))
    module, inputs = network.make(eager=True) if eager else network.make()
    module = module.float().eval()
    values = tuple(inputs.values())
    begin = time.perf_counter()
    with torch.no_grad():
        vary(module)
        calibrate(module, values)
        options = {"dynamic_axes": network.dynamic} if network.dynamic and exporter == "script" else {}
        torch.onnx.export(module, values, f"{stem}.onnx", input_names=list(inputs), dynamo=EXPORTERS[exporter], **options)
    model = onnx.load(f"{stem}.onnx", load_external_data=False)
    if any(node.op_type.startswith("Random") for node in model.graph.node):
        raise ValueError("it draws random numbers, which no two engines share")
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    taken = {value.name for value in model.graph.input}
    numpy.savez(f"{stem}.npz", **{name: value.numpy() for name, value in inputs.items() if name in taken})
    return {"opset": opset, "nodes": count_nodes(model.graph), "seconds": round(time.perf_counter() - begin, 1),
            "may_differ": network.may_differ}


def reason_of(error):
    """The first line of an error that says something, and where it has a cause its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def worker(network, exporter, stem):
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1), os.dup2(nowhere.fileno(), 2)
    try:
        made = make_file(network, exporter, stem)
    except BaseException as error:  # noqa: BLE001: whatever an exporter throws is the reason that the table shows
        made = {"error": reason_of(error)}
        if network.has_eager:
            try:
                made = {**make_file(network, exporter, stem, eager=True), "attention": "eager"}
            except BaseException:  # noqa: BLE001: the first reason stands
                pass
    pathlib.Path(f"{stem}.json").write_text(json.dumps(made))


def exported(network, exporter, folder, again=False):
    """What the .json of a network says; it is exported first where that was not tried yet, or failed and is to be tried `again`."""
    stem = stem_of(network.name, exporter, folder)
    known = pathlib.Path(f"{stem}.json")
    known.parent.mkdir(parents=True, exist_ok=True)
    if known.exists():
        made = json.loads(known.read_text())
        if not (again and "error" in made):
            return made
        known.unlink()
    process = multiprocessing.get_context("fork").Process(target=worker, args=(network, exporter, stem))
    process.start()
    process.join(LIMIT)
    if process.is_alive():
        process.kill()
        process.join()
        known.write_text(json.dumps({"error": f"takes above {LIMIT} s"}))
    elif not known.exists():
        known.write_text(json.dumps({"error": f"the exporter ends with {process.exitcode}"}))
    made = json.loads(known.read_text())
    if "error" in made:
        for left in known.parent.glob(f"{known.stem}.*"):
            if left != known:
                left.unlink()
    return made


def export_all(networks, exporters, folder, again=False):
    """Exports those that are not there yet. PyTorch is loaded once, here, and the processes are forked from this one."""
    left = [(network, exporter) for network in networks for exporter in exporters
            if again or not pathlib.Path(f"{stem_of(network.name, exporter, folder)}.json").exists()]
    if not left:
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import timm  # noqa: F401
    import torch  # noqa: F401
    import torchvision  # noqa: F401
    import transformers  # noqa: F401
    for network, exporter in left:
        begin = time.perf_counter()
        made = exported(network, exporter, folder, again)
        what = made.get("error") or f"{made['nodes']} nodes, opset {made['opset']}"
        print(f"{network.name}, {exporter}: {what} ({time.perf_counter() - begin:.0f} s)", file=sys.stderr, flush=True)
