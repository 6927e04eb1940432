"""A worker process of a peer, and what it has said so far."""

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

START = 60
END = 20


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
            said = json.loads(line)
            if "ready" in said:
                self.ready.set()
            self.first = said.get("first") or self.first
            self.handled = said.get("handled", self.handled)
            self.summary = said

    def wait_until_ready(self):
        if not self.ready.wait(START):
            self.kill()
            raise SystemExit(f"{self.process.args[0]}: no worker within {START} s")

    def check(self):
        """A worker that ended by itself has failed."""
        if self.process.poll() is not None:
            raise SystemExit(f"{self.process.args}: the worker ended ({self.process.returncode})")

    def end(self):
        """Closes its input, which ends it, and returns its last words."""
        self.process.stdin.close()
        try:
            self.process.wait(timeout=END)
        except subprocess.TimeoutExpired:
            self.kill()
        self.reader.join(timeout=END)
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


def together(commands):
    """Runs several at once, and returns what they did in all."""
    with ThreadPoolExecutor() as pool:
        said = list(pool.map(run, commands))
    return {"per_second": sum(one["per_second"] for one in said), "count": sum(one["count"] for one in said)}


def until(condition, seconds, every=0.005):
    """Waits until the condition holds, or so many seconds; says which."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True
