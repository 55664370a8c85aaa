"""Plugin of pytest that runs a share of the tests: share I of N (-p turn --share I/N), or another one in each run (-p turn --shares N). Of both, a share of a share.

EVN_TURN, which scripts/test sets to the number of commits, selects the share of --shares, so that a commit is always tested alike. EVN_TEST_FULL=1 runs
all tests of --shares.
"""
import os
import zlib


def pytest_addoption(parser):
    parser.addoption("--shares", type=int, default=1, help="run one of so many shares of the tests: that of EVN_TURN")
    parser.addoption("--share", metavar="I/N", default="0/1", help="run share I, from 0 on, of N")


def pytest_collection_modifyitems(config, items):
    share, of = (int(part) for part in config.getoption("share").split("/"))
    shares = 1 if os.environ.get("EVN_TEST_FULL") == "1" else config.getoption("shares")
    turn = int(os.environ.get("EVN_TURN", "0")) % shares
    taken, left = [], []
    for item in items:
        number = zlib.crc32(item.name.encode())
        (taken if number % of == share and number // of % shares == turn else left).append(item)
    items[:] = taken
    config.hook.pytest_deselected(items=left)
