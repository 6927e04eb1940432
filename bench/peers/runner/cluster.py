"""A private, durable PostgreSQL server for one run."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

# Everything else is an initdb default: fsync, synchronous_commit and autovacuum are on.
SETTINGS = {
    "listen_addresses": "''",
    "max_connections": "300",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "log_min_messages": "error",
}


class Cluster:
    """Use it in a with statement."""

    def __init__(self, bindir):
        self.bindir = Path(bindir)
        # A short path, because the length of a socket's path is limited.
        self.folder = Path(tempfile.mkdtemp(prefix="peers-", dir="/tmp"))

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._remove()
            raise
        return self

    def _start(self):
        if os.geteuid() == 0:
            # postgres refuses to run as root.
            account = pwd.getpwnam("postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self.folder.chmod(0o755)
        data = self.folder / "data"
        self._as_server("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
        with open(data / "postgresql.conf", "a") as conf:
            conf.write(f"unix_socket_directories = '{self.folder}'\n")
            conf.writelines(f"{name} = {value}\n" for name, value in SETTINGS.items())
        self._as_server("pg_ctl", "-D", data, "-w", "-l", self.folder / "log", "start")

    def __exit__(self, *_):
        self._remove()

    def _remove(self):
        try:
            if (self.folder / "data/postmaster.pid").exists():
                self._as_server("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _as_server(self, program, *arguments):
        command = [str(self.bindir / program), *map(str, arguments)]
        if os.geteuid() == 0:
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) if program != "pg_ctl" else subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            raise SystemExit(f"{program} failed: {done.stdout or (self.folder / 'log').read_text()}")

    def url(self, database):
        """A URL with the Unix socket, so that TCP delays and a missing TCP_NODELAY affect no driver."""
        return f"postgresql:///{database}?host={self.folder}&user=postgres"

    def query(self, sql, database="postgres"):
        """Runs a statement with psql, and returns its output."""
        done = subprocess.run(
            [self.bindir / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql, self.url(database)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"{sql}: {done.stderr}")
        return done.stdout.strip()

    def new_database(self, template, database="measured"):
        """A new database from the template, after a checkpoint, so that no run pays for earlier writes."""
        self.query(f"drop database if exists {database} with (force)")
        self.query(f"create database {database} template {template}")
        self.query("checkpoint")
        return self.url(database)

    def session(self, database="measured"):
        return Session(self.bindir, self.url(database))


class Session:
    """An open psql session, for a query that is repeated often."""

    def __init__(self, bindir, url):
        self.psql = subprocess.Popen(
            [bindir / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )

    def query(self, sql):
        self.psql.stdin.write(f"{sql};\n")
        self.psql.stdin.flush()
        return self.psql.stdout.readline().strip()

    def close(self):
        self.psql.stdin.close()
        self.psql.wait(timeout=30)
