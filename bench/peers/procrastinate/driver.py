"""procrastinate, by its asynchronous connector. The protocol is in ../README.md."""

import argparse
import asyncio
import json
import logging
import os
import sys
import time

import procrastinate

UNFINISHED = "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))"
WARM_UP = 1.0
# How much later than planned a call may be before it is counted from when it should have been.
LATE = 0.002
REPORT_EVERY = 0.02
PAD = "x" * 168

# https://procrastinate.readthedocs.io/en/stable/howto/production/concurrency.html: asynchronous tasks, many at a time,
# with as many connections; finished jobs are kept, as they are by the others that keep them.
CONCURRENCY = 30


def say(**line):
    print(json.dumps(line), flush=True)


def payload(late=0.0):
    """200 bytes of JSON: when the call was made, and filling."""
    return {"at": time.time_ns() // 1000 - round(late * 1e6), "pad": PAD}


class Seen:
    """What the handler has seen."""

    def __init__(self):
        self.first = 0
        self.times = []

    def saw(self, at):
        now = time.time_ns() // 1000
        self.first = self.first or now
        self.times.append((at, now))


def app(options, connections, seen):
    connector = procrastinate.PsycopgConnector(
        conninfo=options.database, min_size=connections, max_size=connections
    )
    made = procrastinate.App(connector=connector)

    @made.task(name="peer")
    async def peer(at, pad):
        seen.saw(at)

    return made, peer


async def prepare(options):
    made, _ = app(options, 2, None)
    async with made.open_async():
        await made.schema_manager.apply_schema_async()
    say(unfinished=UNFINISHED)


async def enqueue(options):
    made, task = app(options, max(options.clients, 2), None)
    async with made.open_async():
        if options.rate:
            return await paced(task, options)
        begin = time.monotonic() + WARM_UP
        end = begin + options.seconds

        async def one():
            count = 0
            while True:
                await task.defer_async(**payload())
                now = time.monotonic()
                if now >= end:
                    return count
                count += now >= begin

        counts = await asyncio.gather(*(one() for _ in range(options.clients)))
        say(per_second=sum(counts) / options.seconds, count=sum(counts))


async def paced(task, options):
    """One client at a fixed rate per second. A call that a slow one delayed counts from when it was due. Says of each call when it was due and when it had committed."""
    begin = time.monotonic()
    count = 0
    calls = []
    while (due := count / options.rate) < options.seconds:
        await asyncio.sleep(max(begin + due - time.monotonic(), 0))
        late = time.monotonic() - begin - due
        one = payload(late if late > LATE else 0.0)
        await task.defer_async(**one)
        calls.append((one["at"], time.time_ns() // 1000))
        count += 1
    say(per_second=count / (time.monotonic() - begin), count=count, calls=calls)


async def batch(options):
    made, task = app(options, max(options.clients, 2), None)
    async with made.open_async():
        begin = time.monotonic()
        left = options.count

        async def many():
            nonlocal left
            while left > 0:
                size = min(options.batch, left)
                left -= size
                await task.batch_defer_async(*(payload() for _ in range(size)))

        await asyncio.gather(*(many() for _ in range(options.clients)))
        say(per_second=options.count / (time.monotonic() - begin), count=options.count)


async def work(options):
    seen = Seen()
    # Where each job comes alone, others who look for it are in its way.
    best = options.settings == "best" and options.aim == "throughput"
    made, _ = app(options, CONCURRENCY + 2 if best else 4, seen)
    settings = {"concurrency": CONCURRENCY} if best else {}
    async with made.open_async():
        running = asyncio.create_task(made.run_worker_async(install_signal_handlers=False, **settings))
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        say(ready=True)
        reported = 0
        while not ended.done():
            await asyncio.sleep(REPORT_EVERY)
            if running.done():
                running.result()
                return
            if len(seen.times) != reported:
                reported = len(seen.times)
                say(first=seen.first, handled=reported)
        say(handled=len(seen.times), seen=seen.times)
        # What it would still like to put in order is not ours to wait for.
        os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["prepare", "enqueue", "batch", "work"])
    parser.add_argument("--database", required=True)
    parser.add_argument("--settings", default="best")
    parser.add_argument("--aim", default="throughput")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--for", dest="seconds", type=float, default=5)
    parser.add_argument("--rate", type=float)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    asyncio.run(globals()[options.verb](options))


if __name__ == "__main__":
    main()
