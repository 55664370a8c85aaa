"""Prints what became of the drawn cases of each operator.

usage: PYTHONPATH=tests/models:bindings/python python -m differential [--build DIR] [--cases N] [--seed N] [NAME...]
"""
import argparse
import pathlib
import sys
import time

from . import GENERATORS, trial

ROOT = pathlib.Path(__file__).resolve().parents[3]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build" / "release"))
    parser.add_argument("--cases", type=int, default=50, help="counted cases of each operator")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    rows, start = trial.operator_rows(arguments.build), time.monotonic()
    trials, counts = trial.Trials(rows), {}
    for domain, name in sorted(rows):
        if (domain, name) in GENERATORS and (not arguments.names or name in arguments.names):
            counts[domain, name] = count = trials.run(domain, name, arguments.cases, arguments.seed)
            print(f"{name:28} {count.line()}", *filter(None, [count.too_many_dropped()]), *count.failures, sep="\n    ")
    disagreed = {}
    for (_, name), count in counts.items():
        for reason, cases in count.disagreed.items():
            disagreed.setdefault(reason, {})[name] = cases
    for reason, names in disagreed.items():
        print(f"the judges disagree: {reason}: {', '.join(f'{name} {cases}' for name, cases in names.items())}")
    print(f"{len(counts)} operators, {sum(c.counted for c in counts.values())} counted cases, {sum(sum(c.disagreed.values()) for c in counts.values())} "
          f"where the judges disagree, {sum(len(c.failures) for c in counts.values())} failures, {time.monotonic() - start:.0f} s")
    return any(count.failures or count.too_many_dropped() or count.counted < arguments.cases for count in counts.values())


if __name__ == "__main__":
    sys.exit(main())
