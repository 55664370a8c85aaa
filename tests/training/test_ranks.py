"""Data-parallel training in several processes, by MPI and by Gloo: losses as those of one process, ranks with equal bits, failures."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("EVENER_LIBRARY", "")).parent

# What MPI leaks at its end lies in libraries that are gone by then, and is taken for the library's.
LEAKS = {"mpi": pytest.mark.skipif(bool(os.environ.get("EVN_SANITIZER_PRELOAD")), reason="MPI leaks memory of its own: the release build runs it")}


def params(names):
    """With the reasons why some cannot run here."""
    made = []
    for name in names:
        engine = name.partition(":")[0]
        is_there = (BUILD / f"libevener_{engine}.so").exists() and (engine != "mpi" or shutil.which("mpirun") is not None)
        marks = [pytest.mark.skipif(not is_there, reason=f"libevener_{engine}.so or its launcher is not there"), *filter(None, [LEAKS.get(engine)])]
        made.append(pytest.param(name, marks=marks))
    return made


ENGINES = params(["gloo", "mpi"])
TRANSPORTS = params(["gloo", "mpi", "gloo:engine", "mpi:engine"])  # with their own sums, as between machines, too
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none", "-np"]
SGD = {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9, "check_ranks": True}


def start(tmp_path, ranks, engine=None, timeout=120, **how):
    """Runs the ranks; gives what each has written, None for one that wrote nothing. Where a rank hangs, mpirun or rank 0 must end by itself."""
    engine, _, transport = (engine or "").partition(":")
    folder = tmp_path / f"{engine}-{ranks}-{len(list(tmp_path.iterdir()))}"
    (folder / "store").mkdir(parents=True)
    settings = folder / "how.json"
    settings.write_text(json.dumps({"collective": engine or None, "store": str(folder / "store"), "model": "mlp", "steps": 10, "batch": 16, "options": SGD, **how}))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]), "GLOO_SOCKET_IFNAME": "lo", "EVN_RANKS": transport}
    command = [sys.executable, str(HERE / "rank.py"), str(settings)]
    if engine == "mpi" and ranks > 1:
        children = [subprocess.Popen([*MPIRUN, str(ranks), *command, "-1", str(ranks), str(folder / "out")], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)]
    else:
        children = [subprocess.Popen([*command, str(rank), str(ranks), str(folder / "out")], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                    for rank in range(ranks)]
    texts = []
    try:
        for child in children[:1] if "hangs" in how else children:  # a rank that hangs is one of the others
            texts.append(child.communicate(timeout=timeout)[0].decode())
    finally:
        for child in children:
            child.kill()
            child.wait()
    outs = []
    for rank in range(ranks):
        path = folder / f"out.{rank}"
        outs.append(json.loads(path.read_text()) if path.exists() else None)
    if all(out is None for out in outs):
        pytest.fail("\n".join(texts))
    return outs


def run_by_mpi(ranks, body, tmp_path):
    """Runs a program in processes that mpirun starts, which sum by MPI. Without OpenCL's drivers, whose threads a forked child lacks at its exit."""
    program = f"""
import ctypes, os, signal, threading, time
import evener, nets
signal.alarm(100)
mpi = ctypes.CDLL({str(BUILD / "libevener_mpi.so")!r})
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
model = nets.mlp()[0].SerializeToString()
batches = list(nets.batches("mlp", 200))
def status_of(call):
    try:
        call()
    except evener.Error as error:
        return error.status.name
{body}"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]), "EVN_RANKS": "engine",
                   "OCL_ICD_VENDORS": str(tmp_path), "OCL_ICD_FILENAMES": "", "OPENCL_VENDOR_PATH": str(tmp_path)}
    done = subprocess.run([*MPIRUN, str(ranks), sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def transport_of(engine):
    """Processes of one machine sum through shared memory, unless they are told otherwise."""
    return engine.partition(":")[0] if engine.endswith(":engine") else "shared memory"


def same_bits(outs):
    return all(out["bits"] == outs[0]["bits"] and not out["errors"] for out in outs)


def close(ours, theirs):
    return all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("engine", TRANSPORTS)
@pytest.mark.parametrize("model", ["mlp", "simple_cnn"])
def test_two_ranks_have_the_losses_of_one_process(tmp_path, engine, model):
    alone = start(tmp_path, 1, model=model)[0]
    pair = start(tmp_path, 2, engine, model=model, changed_weights=True)
    assert len(alone["losses"]) == 10 and not alone["errors"], alone["errors"]
    assert same_bits(pair), [out["errors"] for out in pair]
    for out in pair:
        assert close(out["losses"], alone["losses"]), (out["losses"], alone["losses"])
    assert pair[0]["losses"] == pair[1]["losses"]
    assert [out["transport"] for out in pair] == [transport_of(engine)] * 2


@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_prune_the_same_channels(tmp_path, engine):
    options = {**SGD, "prune_share": 0.5, "prune_begin": 2, "prune_steps": 5}
    alone = start(tmp_path, 1, model="simple_cnn", options=options)[0]
    pair = start(tmp_path, 2, engine, model="simple_cnn", options=options)
    assert same_bits(pair), [out["errors"] for out in pair]
    assert close(pair[0]["losses"], alone["losses"]), (pair[0]["losses"], alone["losses"])
    whole = start(tmp_path, 1, model="simple_cnn")[0]
    assert close(alone["losses"][:3], whole["losses"][:3]) and not close(alone["losses"][3:], whole["losses"][3:])


@pytest.mark.parametrize("engine", TRANSPORTS)
def test_three_ranks_with_uneven_batches_small_buckets_and_sums(tmp_path, engine):
    alone = start(tmp_path, 1, batch=24)[0]
    uneven = start(tmp_path, 3, engine, batch=24, uneven=True, options={**SGD, "bucket_bytes": 256})
    assert same_bits(uneven), [out["errors"] for out in uneven]
    assert close(uneven[0]["losses"], alone["losses"])
    together = {**SGD, "accumulate": 2}
    alone = start(tmp_path, 1, batch=24, options=together)[0]
    summed = start(tmp_path, 3, engine, batch=24, options=together)
    assert same_bits(summed), [out["errors"] for out in summed]
    assert close(summed[0]["losses"], alone["losses"])
    refused = start(tmp_path, 3, engine, batch=24, uneven=True, options=together)
    assert all("of one size" in out["errors"][0][2] for out in refused)


@pytest.mark.parametrize("engine", ENGINES)
def test_moving_statistics_are_the_mean_of_all_ranks(tmp_path, engine):
    pair = start(tmp_path, 2, engine, model="residual", steps=1)
    assert same_bits(pair), [out["errors"] for out in pair]
    halves = [start(tmp_path, 1, model="residual", steps=1, rows=rows)[0]["statistics"] for rows in ([0, 8], [8, 16])]
    assert len(halves[0]) == 10 and halves[0] != halves[1]
    for name, values in pair[0]["statistics"].items():
        want = np.mean([half[name] for half in halves], axis=0)
        np.testing.assert_allclose(values, want, rtol=1e-5, atol=1e-6, err_msg=name)
    assert same_bits(start(tmp_path, 2, engine, model="residual"))


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_that_others_are_made_of_are_summed_once(tmp_path, engine):
    alone = start(tmp_path, 1, model="adapted")[0]
    pair = start(tmp_path, 2, engine, model="adapted", options={**SGD, "bucket_bytes": 64})
    assert same_bits(pair), [out["errors"] for out in pair]
    assert close(pair[0]["losses"], alone["losses"]), (pair[0]["losses"], alone["losses"])


@pytest.mark.parametrize("engine", TRANSPORTS)
def test_a_rank_that_fails_fails_all_and_changes_nothing(tmp_path, engine):
    good = start(tmp_path, 2, engine, steps=4)
    outs = start(tmp_path, 2, engine, steps=4, fails=[1, 2], goes_on=True)
    assert [e[:2] for e in outs[1]["errors"]] == [[2, "EVN_ERROR_INVALID_ARGUMENT"]]
    assert [e[:2] for e in outs[0]["errors"]] == [[2, "EVN_ERROR_WRONG_STATE"]] and "rank 1" in outs[0]["errors"][0][2]
    assert outs[0]["losses"][:2] == good[0]["losses"][:2] and outs[0]["bits"] == outs[1]["bits"]
    assert [out["batches"] for out in (*good, *outs)] == [4, 4, 3, 3]  # random numbers depend on it
    outs = start(tmp_path, 2, engine, steps=4, nan=[1, 2])
    assert [out["skipped"] for out in outs] == [[False, False, True, False]] * 2 and same_bits(outs)


@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_with_other_models_or_options_are_refused(tmp_path, engine):
    outs = start(tmp_path, 2, engine, model="simple_cnn", other_model=1)
    assert all(out["errors"][0][1] == "EVN_ERROR_INVALID_ARGUMENT" and "different models" in out["errors"][0][2] for out in outs), outs


@pytest.mark.parametrize("engine", params(["gloo"]))
@pytest.mark.parametrize("other", [{"changed_weights": True, "options": {**SGD, "frozen": ["fc1*"]}}, {"other_operator": True}], ids=["frozen weight", "operator"])
def test_ranks_whose_models_differ_in_what_does_not_learn_are_refused(tmp_path, engine, other):
    outs = start(tmp_path, 2, engine, **other)
    assert all(out["errors"][0][1] == "EVN_ERROR_INVALID_ARGUMENT" and "different models" in out["errors"][0][2] for out in outs), outs


@pytest.mark.parametrize("engine", TRANSPORTS)
def test_a_rank_that_hangs_ends_the_others_in_time(tmp_path, engine):
    outs = start(tmp_path, 2, engine, steps=4, hangs=[1, 2], options={**SGD, "timeout": 4}, timeout=100)
    number, status, message = outs[0]["errors"][0]
    assert number == 2 and status == "EVN_ERROR_TIMEOUT", message
    assert outs[0]["seconds"] < 30


@pytest.mark.parametrize("engine", params(["mpi"]))
def test_trainers_of_two_threads_call_mpi_one_at_a_time(engine, tmp_path):
    run_by_mpi(2, f"""
with evener.Runtime(threads=2) as runtime:
    trainers = [evener.Trainer(runtime, model, collective="{engine}", learning_rate=0.01, bucket_bytes=64) for _ in range(2)]
    losses = [[], []]
    def train(number):
        losses[number] = [trainers[number].step(*batch).loss for batch in batches]
    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
assert len(losses[0]) == len(batches) and losses[0] == losses[1]
""", tmp_path)


@pytest.mark.parametrize("engine", params(["mpi"]))
def test_a_forked_child_of_a_rank_leaves_mpi_alone(engine, tmp_path):
    """C's exit calls what the module has registered. In a child of one rank MPI_Finalize would wait for the other rank, which waits for the parent."""
    run_by_mpi(2, f"""
with evener.Runtime(threads=1) as runtime:
    make = lambda: evener.Trainer(runtime, model, collective="{engine}", learning_rate=0.01)
    trainer = make()
    trainer.step(*batches[0])
    child = os.fork() if rank == 0 else None
    if child == 0:
        signal.alarm(20)
        ctypes.CDLL(None).exit(0 if status_of(make) == "FORKED" else 1)
    if child is not None:
        assert os.waitpid(child, 0)[1] == 0
    trainer.step(*batches[0])
""", tmp_path)


@pytest.mark.parametrize("engine", params(["mpi"]))
def test_a_trainer_after_the_end_of_mpi_is_an_error(engine, tmp_path):
    run_by_mpi(1, f"""
serialized = 2
assert mpi.MPI_Init_thread(None, None, serialized, ctypes.byref(ctypes.c_int())) == 0
with evener.Runtime(threads=1) as runtime:
    make = lambda: evener.Trainer(runtime, model, collective="{engine}", learning_rate=0.01)
    trainer = make()
    step = lambda: trainer.step(*batches[0])
    step()
    assert mpi.MPI_Finalize() == 0
    assert [status_of(call) for call in (make, step)] == ["WRONG_STATE"] * 2
""", tmp_path)


@pytest.mark.parametrize("engine", params(["mpi"]))
def test_the_end_of_mpi_ends_a_step_that_waits_for_another_rank(engine, tmp_path):
    """Rank 1 never makes the second step."""
    run_by_mpi(2, f"""
multiple = 3
assert mpi.MPI_Init_thread(None, None, multiple, ctypes.byref(ctypes.c_int())) == 0
with evener.Runtime(threads=1) as runtime:
    trainer = evener.Trainer(runtime, model, collective="{engine}", learning_rate=0.01)
    trainer.step(*batches[0])
    statuses = []
    waiting = threading.Thread(target=lambda: statuses.append(status_of(lambda: trainer.step(*batches[1]))))
    if rank == 0:
        waiting.start()
        time.sleep(2)
        assert waiting.is_alive()
    assert mpi.MPI_Finalize() == 0
    if rank == 0:
        waiting.join()
        assert statuses == ["WRONG_STATE"], statuses
""", tmp_path)


@pytest.mark.parametrize("engine", params(["mpi"]))
def test_exit_during_a_step_does_not_wait_in_mpi(engine, tmp_path):
    """Rank 1 makes the second step when rank 0 has passed the module's exit handler. Exit handlers run in the reverse order of their registration."""
    run_by_mpi(2, f"""
passed = {str(tmp_path / "passed")!r}
losses = []
def end(status, argument):
    open(passed, "w").close()
    waiting.join()
    os._exit(0 if losses and mpi.MPI_Finalize() == 0 else 1)
handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(end)
with evener.Runtime(threads=1) as runtime:
    if rank == 0:
        ctypes.CDLL(None).on_exit(handler, None)
    trainer = evener.Trainer(runtime, model, collective="{engine}", learning_rate=0.01)
    trainer.step(*batches[0])
    if rank == 0:
        waiting = threading.Thread(target=lambda: losses.append(trainer.step(*batches[1]).loss))
        waiting.start()
        time.sleep(2)
        ctypes.CDLL(None).exit(0)
    while not os.path.exists(passed):
        time.sleep(0.01)
    trainer.step(*batches[1])
""", tmp_path)


@pytest.mark.parametrize("engine", params(["gloo", "gloo:engine"]))  # mpirun itself ends the others
def test_a_rank_that_dies_ends_the_others(tmp_path, engine):
    outs = start(tmp_path, 2, engine, steps=4, dies=[1, 2], options={**SGD, "timeout": 10})
    assert outs[1] is None
    number, status, message = outs[0]["errors"][0]
    assert number == 2 and status in ("EVN_ERROR_DEVICE_LOST", "EVN_ERROR_TIMEOUT"), message
    assert outs[0]["seconds"] < 30


@pytest.mark.parametrize("engine", ENGINES)
def test_training_goes_on_with_another_number_of_ranks(tmp_path, engine):
    state = str(tmp_path / "state.safetensors")
    first = start(tmp_path, 2, engine, steps=3, save=state)
    assert same_bits(first)
    alone = start(tmp_path, 1, steps=3, restore=state, seed=6)[0]
    three = start(tmp_path, 3, engine, steps=3, restore=state, seed=6, changed_weights=True)
    assert same_bits(three), [out["errors"] for out in three]
    assert close(three[0]["losses"], alone["losses"])


@pytest.mark.parametrize("engine", ENGINES)
def test_normalization_by_the_batches_of_all_ranks(tmp_path, engine):
    """Of one process with the whole batch, losses are those of two ranks with synchronized normalization, and no others."""
    synchronized = {**SGD, "sync_norm": True}
    alone = start(tmp_path, 1, model="residual", steps=6)[0]
    pair = start(tmp_path, 2, engine, model="residual", steps=6, options=synchronized)
    assert same_bits(pair), [out["errors"] for out in pair]
    assert all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(pair[0]["losses"], alone["losses"], strict=True)), (pair[0]["losses"], alone["losses"])
    apart = start(tmp_path, 2, engine, model="residual", steps=6)
    assert not all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(apart[0]["losses"], alone["losses"], strict=True))
    for failure in ({"fails": [1, 2]}, {"nan": [1, 2]}):
        outs = start(tmp_path, 2, engine, model="residual", steps=4, goes_on=True, options=synchronized, **failure)
        assert outs[0]["bits"] == outs[1]["bits"] and len(outs[0]["losses"]) == (3 if "fails" in failure else 4), outs[0]["errors"]
    refused = start(tmp_path, 2, engine, model="residual", uneven=True, options=synchronized)
    assert all("of one size" in out["errors"][0][2] for out in refused)
