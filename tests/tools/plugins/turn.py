"""Plugin of pytest that runs one share of the tests: share I of N (-p turn --share I/N), or another one in each run (-p turn --shares N).

EVN_TURN, which scripts/test sets to the number of commits, selects the share of --shares, so that a commit is always tested alike. EVN_TEST_FULL=1 runs
all tests of --shares.
"""
import os
import zlib


def pytest_addoption(parser):
    parser.addoption("--shares", type=int, default=1, help="run one of so many shares of the tests: that of EVN_TURN")
    parser.addoption("--share", metavar="I/N", help="run share I, from 0 on, of N")


def pytest_collection_modifyitems(config, items):
    if config.getoption("share"):
        turn, shares = (int(part) for part in config.getoption("share").split("/"))
    elif os.environ.get("EVN_TEST_FULL") == "1":
        return
    else:
        shares = config.getoption("shares")
        turn = int(os.environ.get("EVN_TURN", "0")) % shares
    if shares <= 1:
        return
    taken, left = [], []
    for item in items:
        (taken if zlib.crc32(item.name.encode()) % shares == turn else left).append(item)
    items[:] = taken
    config.hook.pytest_deselected(items=left)
