"""Helpers of several tests: arrays, threads that do the same work, other interpreters, and forks that find all other threads asleep."""
import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy


def floats(*values):
    return numpy.array(values, "float32")


def dying(*values):
    """An array of float32 whose elements become -1 when nothing refers to the array any more."""
    memory = floats(*values)

    class Owner:
        __array_interface__ = memory.__array_interface__

        def __del__(self):
            memory[:] = -1

    return numpy.asarray(Owner())


def run_python(code, **environment):
    """Runs code in an interpreter of its own."""
    here = pathlib.Path(__file__).resolve()
    paths = os.pathsep.join([str(here.parents[1]), str(here.parent)])
    return subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=paths, **environment),
                          capture_output=True, text=True, timeout=120)


def in_threads(work, count):
    """Calls work(0) to work(count - 1), each in a thread of its own, and waits for all."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def fork_when_others_sleep():
    """os.fork() once all other threads of the process sleep: a child cannot allocate when another thread was in AddressSanitizer's
    allocator, whose locks stay locked in the child (glibc's do not)."""
    def others():
        try:
            stats = [path.read_text().rpartition(")")[2] for path in pathlib.Path("/proc/self/task").glob("*/stat")
                     if path.parent.name != str(threading.get_native_id())]
        except OSError:  # a thread has just ended
            return False
        return all(stat.split()[0] == "S" for stat in stats)
    asleep = 0
    while asleep < 3:  # three times in a row: some might have been about to go on
        time.sleep(0.01)
        asleep = asleep + 1 if others() else 0
    return os.fork()
