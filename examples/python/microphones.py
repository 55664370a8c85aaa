#!/usr/bin/env python3
"""Listens to many microphones at once: one session, a state for each stream, and requests that the library's threads serve.

usage: microphones.py --model silero_vad.onnx --audio RECORDING.wav [--microphones 16] [--seconds 20] [--config YAML]

Each microphone hears the recording from another moment on. Every 32 ms of sound is a request with the stream's state, which goes from
run to run inside the library; a deadline says how late an answer may be. Prints how much of the time somebody speaks at each microphone.
"""
import argparse
import asyncio
import sys
import pathlib
import time

import numpy

import evener

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import voice  # noqa: E402


async def listen(session, state, samples, seconds, patience=1.0):
    """The share of chunks with speech, and how many answers came later than `patience` seconds."""
    context = numpy.zeros(voice.CONTEXT, "float32")
    rate = numpy.array(voice.RATE, "int64")
    spoken = late = chunks = 0
    for begin in range(0, int(seconds * voice.RATE) - voice.CHUNK + 1, voice.CHUNK):
        chunk = numpy.take(samples, range(begin, begin + voice.CHUNK), mode="wrap")
        inputs = {"input": numpy.concatenate([context, chunk])[None], "sr": rate}
        chunks += 1
        try:
            outputs = await session.run_async(inputs, state=state, deadline=time.monotonic() + patience)
            spoken += float(outputs["output"][0, 0]) >= voice.START
        except evener.Error as error:
            if error.status != evener.Status.TIMEOUT:
                raise
            late += 1  # the state is as it was: the stream goes on with the next chunk
        context = chunk[-voice.CONTEXT:]
    return spoken / chunks, late


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--audio", required=True)
    parser.add_argument("--microphones", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--config")
    arguments = parser.parse_args()
    samples = voice.read_wave(arguments.audio)
    with evener.Runtime(config=arguments.config) as runtime, runtime.session(arguments.model) as session:
        states = [session.state([("stateN", "state")], dims={"state": [2, 1, 128]}) for _ in range(arguments.microphones)]
        streams = [listen(session, state, numpy.roll(samples, -2 * voice.RATE * i), arguments.seconds) for i, state in enumerate(states)]
        begin = time.monotonic()
        results = await asyncio.gather(*streams)
        took = time.monotonic() - begin
    for number, (share, late) in enumerate(results):
        print(f"microphone {number + 1:2}: speech in {100 * share:3.0f} % of the time" + (f", {late} answers too late" if late else ""))
    print(f"{arguments.microphones * arguments.seconds:.0f} seconds of sound in {took:.1f} s")


if __name__ == "__main__":
    asyncio.run(main())
