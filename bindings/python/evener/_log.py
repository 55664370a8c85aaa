"""The log of a runtime, delivered to a Python function."""
import dataclasses
import functools
import itertools

from . import _raw
from ._library import text_of

LEVELS = ("error", "warning", "info", "debug")


@dataclasses.dataclass(frozen=True)
class LogRecord:
    """One thing that happened, as evn_log_record of the C API has it."""

    level: str    # "error", "warning", "info" or "debug"
    event: str    # what happened, for programs: "device.opened", "program.compiling", ...
    message: str  # the same as a line
    device: str   # the device concerned, or ""
    node: str     # the graph node concerned, or ""
    fields: dict  # figures of the event, as text


# One C function for all runtimes finds theirs by number: a record that comes after the end of the Python objects finds nothing.
_functions = {}
_numbers = itertools.count(1)


@_raw.evn_log_sink
def _deliver(user, record):
    function = _functions.get(user)
    if function is not None:
        r = record.contents
        fields = {text_of(r.fields[i].key): text_of(r.fields[i].value) for i in range(r.field_count)}
        function(LogRecord(LEVELS[r.level], text_of(r.event), text_of(r.message), text_of(r.device), text_of(r.node), fields))


def begin(options, function, level):
    """Puts a function of one LogRecord into options of a runtime; returns what ends its deliveries, which works at exit too."""
    if not callable(function):
        raise TypeError("log must be a function of one LogRecord")
    if level not in LEVELS:
        raise ValueError(f'log_level must be one of {", ".join(LEVELS)}, not {level!r}')
    number = next(_numbers)
    _functions[number] = function
    options.log_sink, options.log_sink_user, options.log_level = _deliver, number, LEVELS.index(level)
    return functools.partial(_functions.pop, number, None)
