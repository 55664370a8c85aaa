#!/usr/bin/env python3
"""Runs a model over a folder of pictures, while the next ones are decoded.

usage: stream_images.py --config YAML --model NAME FOLDER [--ahead N]

The configuration names the model under `models:`: one that takes pictures as N x 3 x H x W or N x H x W x 3. For each picture the
place of the largest element of the first output is printed, which for a classifier is the class. Needs numpy and Pillow; Evener's
Python package must be importable.
"""
import argparse
import sys
import time

import evener


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--config", required=True, help="YAML file that names the model")
    parser.add_argument("--model", required=True, help="its name there")
    parser.add_argument("--ahead", type=int, default=4, help="how many pictures are decoded or computed ahead")
    arguments = parser.parse_args()
    begin, count = time.perf_counter(), 0
    try:
        with evener.Runtime(arguments.config) as runtime, runtime.session(name=arguments.model) as session:
            with evener.stream(session, arguments.folder, prefetch=arguments.ahead, with_items=True) as results:
                for path, outputs in results:
                    scores = next(iter(outputs.values())).ravel()
                    print(f"{path.name}: {scores.argmax()} ({scores.max():.3f})", flush=True)
                    count += 1
    except (evener.Error, evener.StreamError, OSError) as error:
        sys.exit(f"stream_images.py: {error}")
    print(f"{count} pictures, {count / (time.perf_counter() - begin):.1f} per second", file=sys.stderr)


if __name__ == "__main__":
    main()
