"""What several tests use: arrays of float32, and threads that do the same work."""
import threading

import numpy


def floats(*values):
    return numpy.array(values, "float32")


def in_threads(work, count):
    """Calls work(0) to work(count - 1), each in a thread of its own, and waits for all."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
