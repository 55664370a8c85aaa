"""Evener: inference of ONNX models shared between devices.

    import evener, numpy

    runtime = evener.Runtime("devices.yaml", threads=2)        # both optional
    session = runtime.session("model.onnx")
    result = session.run({"x": numpy.zeros((1, 3, 64, 64), "float32")})
    print(session.explain())

A model that the configuration names under `models:` is runtime.session("its name"). evener.stream(session, "pictures") runs a session
over a folder of pictures, and loads some ahead. All objects may be used with `with`.

Arrays go in and come out without copies. Other Python threads run while a model does. Objects may be closed, collected
or abandoned in any order. The library is the one that the environment variable EVENER_LIBRARY names; without it the
release build of this source tree, a library beside this package, or the system's.
"""
from ._device import Device, MemoryStats
from ._dlpack import from_dlpack
from ._event import Event, copy_async
from ._library import Error, Status, library_path, version
from ._loader import Loader
from ._log import LogRecord
from ._model import Model, Value
from ._operator import Node, Spec
from ._quantizer import Quantizer
from ._runtime import Runtime, inspect, passes
from ._session import Cancel, Session, SessionMemoryStats
from ._state import State
from ._stream import Stream, StreamError, stream
from ._tensor import Tensor
from ._trainer import Evaluation, Step, Trainer

__all__ = ["Cancel", "Device", "Error", "Evaluation", "Event", "Loader", "LogRecord", "MemoryStats", "Model", "Node", "Quantizer", "Runtime", "Session", "SessionMemoryStats", "Spec",
           "State", "Status", "Step", "Stream", "StreamError", "Tensor", "Trainer", "Value", "copy_async", "from_dlpack", "inspect", "library_path", "passes", "stream", "version"]
