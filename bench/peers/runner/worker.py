"""A worker process of a peer, and the last line that it printed."""

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

START_TIMEOUT = 60
END_TIMEOUT = 20


class Worker:
    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.ready = threading.Event()
        self.first = None
        self.handled = 0
        self.summary = {}
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            status = json.loads(line)
            if "ready" in status:
                self.ready.set()
            self.first = status.get("first") or self.first
            self.handled = status.get("handled", self.handled)
            self.summary = status

    def wait_until_ready(self):
        if not self.ready.wait(START_TIMEOUT):
            self.kill()
            raise SystemExit(f"{self.process.args[0]}: the worker was not ready within {START_TIMEOUT} s")

    def check(self):
        """Fails if the worker has exited."""
        if self.process.poll() is not None:
            raise SystemExit(f"{self.process.args}: the worker ended ({self.process.returncode})")

    def end(self):
        """Closes its stdin, which ends it, and returns its last line."""
        self.process.stdin.close()
        try:
            self.process.wait(timeout=END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
        self.reader.join(timeout=END_TIMEOUT)
        return self.summary

    def kill(self):
        self.process.kill()
        self.process.wait()


def run(command, seconds=None):
    """Runs a driver that prints one line, and returns it."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=seconds
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed ({done.returncode})")
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_concurrently(commands):
    """Runs several drivers at the same time, and returns the sum of their results."""
    with ThreadPoolExecutor() as pool:
        replies = list(pool.map(run, commands))
    return {
        "per_second": sum(reply["per_second"] for reply in replies),
        "count": sum(reply["count"] for reply in replies),
    }


def wait_until(condition, seconds, every=0.005):
    """Polls until the condition holds. Returns False on a timeout."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True
