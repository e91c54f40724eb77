"""Simulates M/M/1 with simpy: usage: queues.py LOAD JOBS. Prints a line of JSON: the mean time in the
system, in mean lengths of a job, and the processor time."""

import json
import random
import sys
import time

import simpy


def main(load, jobs):
    environment = simpy.Environment()
    worker = simpy.Resource(environment, capacity=1)
    chance = random.Random(1)
    total = 0.0

    def job():
        nonlocal total
        came = environment.now
        with worker.request() as turn:
            yield turn
            yield environment.timeout(chance.expovariate(1.0))
        total += environment.now - came

    def arrivals():
        for _ in range(jobs):
            yield environment.timeout(chance.expovariate(load))
            environment.process(job())

    environment.process(arrivals())
    begun = time.process_time()
    environment.run()
    print(json.dumps({"sojourn": total / jobs, "seconds": time.process_time() - begun}))


main(float(sys.argv[1]), int(sys.argv[2]))
