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
# A call that is later than this counts from its due time.
LATE_THRESHOLD = 0.002
REPORT_EVERY = 0.02
PAD = "x" * 168

# https://procrastinate.readthedocs.io/en/stable/howto/production/concurrency.html: concurrent asynchronous tasks with as
# many connections. Finished jobs are kept.
CONCURRENCY = 30


def print_line(**line):
    print(json.dumps(line), flush=True)


def payload(late=0.0):
    """200 bytes of JSON: the due time of the enqueue, and padding."""
    return {"at": time.time_ns() // 1000 - round(late * 1e6), "pad": PAD}


class HandlerCalls:
    """Records the handler calls of the worker."""

    def __init__(self):
        self.first = 0
        self.times = []

    def record(self, at):
        now = time.time_ns() // 1000
        self.first = self.first or now
        self.times.append((at, now))


def app(options, connections, handler_calls):
    connector = procrastinate.PsycopgConnector(
        conninfo=options.database, min_size=connections, max_size=connections
    )
    made = procrastinate.App(connector=connector)

    @made.task(name="peer")
    async def peer(at, pad):
        handler_calls.record(at)

    return made, peer


async def prepare(options):
    made, _ = app(options, 2, None)
    async with made.open_async():
        await made.schema_manager.apply_schema_async()
    print_line(unfinished=UNFINISHED)


async def enqueue(options):
    made, task = app(options, max(options.clients, 2), None)
    async with made.open_async():
        if options.rate:
            return await enqueue_at_rate(task, options)
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
        print_line(per_second=sum(counts) / options.seconds, count=sum(counts))


async def enqueue_at_rate(task, options):
    """Enqueues from one client at a fixed rate per second, and prints for each call its due time and its commit time.

    A call that a slow one delayed counts from its due time.
    """
    begin = time.monotonic()
    count = 0
    calls = []
    while (due := count / options.rate) < options.seconds:
        await asyncio.sleep(max(begin + due - time.monotonic(), 0))
        late = time.monotonic() - begin - due
        one = payload(late if late > LATE_THRESHOLD else 0.0)
        await task.defer_async(**one)
        calls.append((one["at"], time.time_ns() // 1000))
        count += 1
    print_line(per_second=count / (time.monotonic() - begin), count=count, calls=calls)


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
        print_line(per_second=options.count / (time.monotonic() - begin), count=options.count)


async def work(options):
    handler_calls = HandlerCalls()
    # With single jobs, concurrent workers only compete for each.
    best = options.settings == "best" and options.aim == "throughput"
    made, _ = app(options, CONCURRENCY + 2 if best else 4, handler_calls)
    settings = {"concurrency": CONCURRENCY} if best else {}
    async with made.open_async():
        running = asyncio.create_task(made.run_worker_async(install_signal_handlers=False, **settings))
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        print_line(ready=True)
        reported = 0
        while not ended.done():
            await asyncio.sleep(REPORT_EVERY)
            if running.done():
                running.result()
                return
            if len(handler_calls.times) != reported:
                reported = len(handler_calls.times)
                print_line(first=handler_calls.first, handled=reported)
        print_line(handled=len(handler_calls.times), handler_calls=handler_calls.times)
        # Do not wait for the worker's own shutdown.
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
