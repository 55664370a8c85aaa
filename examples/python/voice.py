#!/usr/bin/env python3
"""Prints the segments of a recording in which somebody speaks.

usage: voice.py --model silero_vad.onnx --audio RECORDING.wav [--config YAML]

The model is Silero VAD (scripts/fetch_models.py more people): it gets 32 ms of sound at a time, with the end of the chunk
before, and carries its state from call to call. Needs numpy; Evener's Python package must be importable.
"""
import argparse
import wave

import numpy

import evener

RATE = 16000          # Hz
CHUNK = 512           # samples
CONTEXT = 64          # samples of the chunk before
START, STOP = 0.5, 0.35   # speech begins above the one probability and ends below the other
SHORTEST_PAUSE = 0.1  # seconds; shorter ones do not end a segment
SHORTEST_SPEECH = 0.25


def read_wave(path):
    """The samples of a 16-bit file, from -1 to 1, its channels mixed, at 16 kHz."""
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2:
            raise SystemExit(f"voice.py: {path} has {8 * file.getsampwidth()} bits a sample, 16 are needed")
        samples = numpy.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels()).mean(axis=1) / 32768
        rate = file.getframerate()
    if rate != RATE:
        times = numpy.arange(int(len(samples) * RATE / rate)) * (rate / RATE)
        samples = numpy.interp(times, numpy.arange(len(samples)), samples)
    return samples.astype("float32")


def probabilities(session, samples):
    """The probability of speech for each chunk."""
    state = numpy.zeros((2, 1, 128), "float32")
    context = numpy.zeros(CONTEXT, "float32")
    result = []
    for begin in range(0, len(samples) - CHUNK + 1, CHUNK):
        chunk = samples[begin:begin + CHUNK]
        outputs = session.run({"input": numpy.concatenate([context, chunk])[None], "state": state, "sr": numpy.array(RATE, "int64")})
        probability, state = outputs.values()
        context = chunk[-CONTEXT:]
        result.append(float(probability[0, 0]))
    return result


def segments(chances):
    """(begin, end) in seconds of each stretch of speech."""
    seconds = CHUNK / RATE
    found, begin, quiet = [], None, 0.0
    for i, chance in enumerate([*chances, 0.0]):
        if begin is None and chance >= START:
            begin, quiet = i * seconds, 0.0
        elif begin is not None and (chance < STOP or i == len(chances)):
            quiet += seconds
            if quiet >= SHORTEST_PAUSE or i == len(chances):
                end = (i + 1) * seconds - quiet
                if end - begin >= SHORTEST_SPEECH:
                    found.append((begin, end))
                begin = None
        elif begin is not None:
            quiet = 0.0
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--audio", required=True)
    parser.add_argument("--config")
    arguments = parser.parse_args()
    samples = read_wave(arguments.audio)
    session = evener.Runtime(config=arguments.config, threads=1).session(arguments.model)
    found = segments(probabilities(session, samples))
    for begin, end in found:
        print(f"{begin:7.2f} s to {end:7.2f} s")
    spoken = sum(end - begin for begin, end in found)
    print(f"{spoken:.1f} of {len(samples) / RATE:.1f} seconds are speech, in {len(found)} segments")


if __name__ == "__main__":
    main()
