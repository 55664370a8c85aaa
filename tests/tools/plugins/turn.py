"""Plugin of pytest that runs one share of the tests, and another one in the next run (-p turn --shares N).

EVN_TURN, which scripts/test sets to the number of commits, selects the share, so that a commit is always tested alike. EVN_TEST_FULL=1 runs all tests.
"""
import os
import zlib


def pytest_addoption(parser):
    parser.addoption("--shares", type=int, default=1, help="run one of so many shares of the tests: that of EVN_TURN")


def pytest_collection_modifyitems(config, items):
    shares = config.getoption("shares")
    if shares <= 1 or os.environ.get("EVN_TEST_FULL") == "1":
        return
    turn = int(os.environ.get("EVN_TURN", "0")) % shares
    taken, left = [], []
    for item in items:
        (taken if zlib.crc32(item.name.encode()) % shares == turn else left).append(item)
    items[:] = taken
    config.hook.pytest_deselected(items=left)
