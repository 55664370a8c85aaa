"""The examples that show something: faces on a picture, speech in a recording and at many microphones."""
import asyncio

import evener
import faces
import microphones
import numpy
import pytest
import voice
from PIL import Image
from test_more_models import path_of
from zoo import MODELS, picture

FACE = (175, 65, 275, 185)  # of the astronaut, in pixels, as a person would draw it


@pytest.mark.parametrize("name", ["blazeface_front", "blazeface_back"])
def test_the_astronaut_has_one_face(name):
    session = evener.Runtime(threads=1).session(path_of(name))
    found = faces.find_faces(session, picture("astronaut.png", "RGB"))
    assert len(found) == 1 and found[0][1] > 0.7
    assert faces.overlap(numpy.array(FACE), found[0][0][None])[0] > 0.6


def test_noise_has_no_face():
    session = evener.Runtime(threads=1).session(path_of("blazeface_back"))
    noise = numpy.random.default_rng(1).integers(0, 256, (300, 400, 3)).astype("uint8")
    assert faces.find_faces(session, Image.fromarray(noise)) == []


def test_the_recording_is_mostly_speech_and_noise_is_none():
    session = evener.Runtime(threads=1).session(MODELS / "silero_vad.onnx")
    samples = voice.read_wave(MODELS / "two_cities.wav")
    found = voice.segments(voice.probabilities(session, samples))
    spoken = sum(end - begin for begin, end in found)
    assert len(found) > 5 and 0.6 < spoken / (len(samples) / voice.RATE) < 0.95
    assert all(begin < end for begin, end in found) and all(a[1] <= b[0] for a, b in zip(found, found[1:]))
    noise = 0.05 * numpy.random.default_rng(1).standard_normal(5 * voice.RATE).astype("float32")
    assert voice.segments(voice.probabilities(session, noise)) == []


def test_sixteen_microphones_hear_what_one_hears():
    samples = voice.read_wave(MODELS / "two_cities.wav")[:4 * voice.RATE]
    session = evener.Runtime(threads=2).session(MODELS / "silero_vad.onnx")
    chances = numpy.array(voice.probabilities(session, samples))

    async def listen():
        states = [session.state([("stateN", "state")], dims={"state": [2, 1, 128]}) for _ in range(16)]
        return await asyncio.gather(*(microphones.listen(session, state, samples, 4, patience=600) for state in states))
    for share, late in asyncio.run(listen()):
        assert late == 0 and share == (chances >= voice.START).mean()  # the same bits, whoever runs beside it
