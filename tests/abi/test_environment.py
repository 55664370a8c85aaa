"""What the built library must not contain, by the rows of the list of hostile cases: E03, E10, C16."""

import os
import pathlib
import re
import subprocess

LIBRARY = os.environ["EVENER_LIBRARY"]
BUILD = pathlib.Path(os.environ["EVENER_BUILD"])


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def undefined(*files):
    return {line.split()[-1].split("@")[0] for line in output("nm", "-u", *files).splitlines() if " U " in line}


def test_e03_no_thread_local_needs_memory_or_a_destructor():
    # Both ways in which glibc ends the process when a thread's memory runs out: a dynamic thread-local, a registered destructor.
    wanted = undefined("-D", LIBRARY)
    assert "malloc" in wanted
    assert not {name for name in wanted if "tls_get_addr" in name or "thread_atexit" in name}
    thread_locals = [line.split()[-1] for line in output("readelf", "-sW", LIBRARY).splitlines() if " TLS " in line]
    initial_exec = ("t_globals", "t_work_meter", "t_callback", "t_thread", "t_execution", "t_own_pins", "t_current", "t_is_own", "t_hosts", "t_heap_meter")  # pointers and small structs of fixed size
    assert [name for name in thread_locals if not any(known in name for known in initial_exec)] == []
    assert thread_locals, "the exception state is one"


def test_e10_no_function_takes_more_than_16_kib_of_stack():
    largest, where, name = 0, "", ""
    for line in output("objdump", "-d", "--no-show-raw-insn", LIBRARY).splitlines():
        if line.endswith(">:"):
            name = line
        elif found := re.search(r"sub\s+\$0x([0-9a-f]+),%rsp", line):
            size = int(found.group(1), 16)
            if largest < size < 1 << 63:  # a negative number gives stack back
                largest, where = size, name
    assert 0 < largest <= 16384, where


def test_c16_nothing_reads_numbers_by_the_locale():  # strtod_l is given the one that it reads by
    archives = sorted(BUILD.glob("libevn_*.a"))
    assert len(archives) > 8
    used = undefined(*map(str, archives))
    assert "memcpy" in used
    by_locale = re.compile(r"(strto(d|f|ld)|ato[fil]|.*scanf|setlocale|uselocale|localeconv|_ZNSt\S*basic_[io]?stringstream\S*)$")
    assert not {name for name in used if by_locale.match(name)}
