#!/usr/bin/env python3
"""Teaches an LSTM to hear three notes in one order, behind a voice and noise.

usage: train_keyword.py [--data two_cities.wav] [--steps 400] [--threads 2] [-o FOLDER]

A second of sound has the notes of the keyword (low, high, middle) or not: then the same notes in another order, two of them, or none. Behind them are a part of a
recorded voice and white noise, from 12 dB below the notes to 3 dB above. What is learned on is made anew for each step; the voice is that of the first two thirds
of the recording, and what the network is tried on has the last third behind it. The LSTM is as large as that of Silero's voice activity detector, 128 numbers wide,
and reads 40 bands of frequencies every 16 ms. FOLDER gets keyword.onnx and keyword.svg. `scripts/fetch_models.py people` fetches the recording.
"""
import argparse
import pathlib
import wave

import curves
import evener
import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATE, BANDS, HIDDEN, WINDOW, HOP = 16000, 40, 128, 512, 256
NOTES, KEYWORD = (520, 1240, 820), (0, 1, 2)  # Hz
OTHERS = ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0), (0, 1), (1, 2), (0, 2), ())


def recording(path):
    """Mono, 16 kHz, from -1 to 1."""
    with wave.open(str(path)) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(-1, file.getnchannels()).mean(1) / 32768
        places = np.arange(0, len(sound) - 1, file.getframerate() / RATE)
    return np.interp(places, np.arange(len(sound)), sound)


def filters():
    """Triangles over the frequencies, close together where ears tell them apart."""
    def mel(hz):
        return 2595 * np.log10(1 + hz / 700)
    edges = np.interp(np.linspace(mel(60), mel(7600), BANDS + 2), mel(np.linspace(0, 8000, 4001)), np.linspace(0, 8000, 4001))
    places = np.fft.rfftfreq(WINDOW, 1 / RATE)
    rise, fall = (places - edges[:-2, None]) / np.diff(edges)[:-1, None], (edges[2:, None] - places) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(rise, fall)).T


FILTERS = filters()


def bands(sounds):
    """Logarithms of the energy in each band, [sounds, times, BANDS]."""
    parts = np.lib.stride_tricks.sliding_window_view(sounds, WINDOW, axis=1)[:, ::HOP] * np.hanning(WINDOW)
    energy = np.abs(np.fft.rfft(parts)) ** 2 @ FILTERS
    return ((np.log(energy + 1e-4) - 1) / 4).astype(np.float32)


def notes(order, random):
    """A second of sound with notes in an order, each a little out of tune."""
    sound = np.zeros(RATE)
    at = int(random.uniform(0.02, 0.25) * RATE)
    for note in order:
        length = int(random.uniform(0.08, 0.14) * RATE)
        times = np.arange(length) / RATE
        tone = np.sin(2 * np.pi * NOTES[note] * random.uniform(0.97, 1.03) * times + random.uniform(0, 6.3))
        sound[at:at + length] += tone * np.minimum(1, 20 * np.minimum(np.arange(length), np.arange(length)[::-1]) / length)
        at += length + int(random.uniform(0.02, 0.08) * RATE)
    return sound


def batch(voice, count, random):
    """Features, and whether the keyword is in them."""
    labels = np.arange(count) % 2
    sounds = []
    for label in labels:
        start = random.integers(0, len(voice) - RATE)
        behind = voice[start:start + RATE] / (voice[start:start + RATE].std() + 1e-3) + random.standard_normal(RATE) * random.uniform(0.1, 1)
        louder = 10 ** (random.uniform(-3, 12) / 20)
        heard = notes(KEYWORD if label else OTHERS[random.integers(len(OTHERS))], random) * np.sqrt(2) * louder + behind / behind.std()
        sounds.append(heard * random.uniform(0.02, 0.2))
    return {"bands": bands(np.stack(sounds))}, labels


def network(seed=0):
    """bands [N, times, BANDS] -> LSTM -> its last state -> logits [N, 2], before anything is learned."""
    random = np.random.default_rng(seed)
    weights = {name: random.uniform(-1, 1, shape).astype(np.float32) / HIDDEN ** 0.5 for name, shape in (
        ("lstm.W", (1, 4 * HIDDEN, BANDS)), ("lstm.R", (1, 4 * HIDDEN, HIDDEN)), ("lstm.B", (1, 8 * HIDDEN)), ("head.weight", (2, HIDDEN)), ("head.bias", (2,)))}
    weights["lstm.B"][:, 2 * HIDDEN:3 * HIDDEN] += 1  # gates that forget are open at first
    nodes = [helper.make_node("Transpose", ["bands"], ["by_time"], name="by_time", perm=[1, 0, 2]),
             helper.make_node("LSTM", ["by_time", "lstm.W", "lstm.R", "lstm.B"], ["", "last"], name="lstm", hidden_size=HIDDEN),
             helper.make_node("Squeeze", ["last", "direction"], ["state"], name="state"),
             helper.make_node("Gemm", ["state", "head.weight", "head.bias"], ["logits"], name="head", transB=1)]
    graph = helper.make_graph(nodes, "keyword", [helper.make_tensor_value_info("bands", TensorProto.FLOAT, ["N", "T", BANDS])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 2])],
                              [*(numpy_helper.from_array(value, name) for name, value in weights.items()), numpy_helper.from_array(np.array([0]), "direction")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/models/two_cities.wav")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."))
    options = parser.parse_args()
    voice, random = recording(options.data), np.random.default_rng(1)
    learned, tried = voice[:len(voice) * 2 // 3], batch(voice[len(voice) * 2 // 3:], 512, np.random.default_rng(2))
    with evener.Runtime(threads=options.threads) as runtime:
        trainer = evener.Trainer(runtime, network(), optimizer="adam", learning_rate=3e-3, schedule="cosine", schedule_steps=options.steps, warmup_steps=20, clip_norm=1.0)
        before, losses, rates, accuracies = trainer.evaluate(*tried).accuracy, [], [], []
        for at in range(options.steps):
            step = trainer.step(*batch(learned, 64, random))
            losses.append(step.loss)
            rates.append(step.learning_rate)
            if at % 50 == 49:
                accuracies.append(trainer.evaluate(*tried).accuracy)
                print(f"{at + 1} steps: loss {np.mean(losses[-50:]):.3f}, {accuracies[-1]:.1%} of seconds that it has not heard", flush=True)
        trainer.finish(options.output / "keyword.onnx")
        logits = runtime.session(options.output / "keyword.onnx").run(tried[0])["logits"]
    after = float((logits.argmax(1) == tried[1]).mean())
    print(f"accuracy: {before:.1%} before, {after:.1%} after {options.steps} steps, of {len(logits)} seconds")
    curves.draw(options.output / "keyword.svg", loss=losses, learning_rate=rates, accuracy=accuracies)


if __name__ == "__main__":
    main()
