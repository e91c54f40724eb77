"""Replays a trace through libcachesim's own code.

Usage: evictions.py TRACE CAPACITY; TRACE holds a record of 24 bytes per request (time u32, object u64,
size u32, next i64), as libcachesim's oracleGeneral format has them. Prints a line of JSON per
algorithm: its hits of all requests, and the best processor time of three rounds.
"""

import json
import sys
import time

import libcachesim

ROUNDS = 3


def main(path, capacity):
    reader = libcachesim.TraceReader(
        path, libcachesim.TraceType.ORACLE_GENERAL_TRACE, libcachesim.ReaderInitParam()
    )
    for name, algorithm in [
        ("lru", libcachesim.LRU),
        ("gdsf", libcachesim.GDSF),
        ("sieve", libcachesim.Sieve),
    ]:
        best = float("inf")
        for _ in range(ROUNDS):
            reader.reset()
            cache = algorithm(capacity)
            begun = time.process_time()
            misses, _ = cache.process_trace(reader)
            best = min(best, time.process_time() - begun)
        print(json.dumps({"name": name, "hits": 1 - misses, "seconds": best}), flush=True)


main(sys.argv[1], int(sys.argv[2]))
