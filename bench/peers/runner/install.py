"""Installs the peers from npm, PyPI and crates.io by their lock files. It writes nothing into the source tree."""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NODE_AT_LEAST = (22, 18)


@dataclass
class Tools:
    here: Path
    cargo: Path
    npm: Path
    node: Path
    venv: Path


def install(here, target):
    """Installs the peers below the target folder, unless that was done for the same lock files."""
    target.mkdir(parents=True, exist_ok=True)
    tools = Tools(here, target / "cargo/release", target / "npm", None, target / "venv")
    _npm(here / "node", tools.npm)
    tools.node = _node(tools.npm)
    _once(tools.venv, [here / "procrastinate/requirements.txt"], lambda: _python(here, tools.venv))
    _call("cargo", "build", "--release", "--locked", "--manifest-path", here / "Cargo.toml", "--target-dir", target / "cargo")
    return tools


def build_symphony(root, target):
    """Makes a release build of symphony, and returns its path."""
    _call("cargo", "build", "--release", "--locked", "-p", "symphony", "--target-dir", target, cwd=root)
    return target / "release/symphony"


def _npm(sources, folder):
    locks = [sources / "package.json", sources / "package-lock.json"]

    def fetch():
        folder.mkdir(parents=True)
        for lock in locks:
            shutil.copy(lock, folder)
        # The system's Node only runs npm, so it may be older than the peers require.
        _call("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", cwd=folder)

    _once(folder, locks, fetch)
    # Node resolves modules relative to the driver's path.
    for driver in sources.glob("*.mjs"):
        shutil.copy(driver, folder)


def _node(npm):
    """The pinned Node, or the system's if there is no pinned one for this platform."""
    for pinned in npm.glob("node_modules/node-*/bin/node"):
        return pinned
    found = shutil.which("node")
    version = subprocess.run([found or "false", "--version"], capture_output=True, text=True).stdout
    numbers = tuple(int(part) for part in version.strip().lstrip("v").split(".")[:2] if part)
    if numbers < NODE_AT_LEAST:
        raise SystemExit(f"the peers need Node {NODE_AT_LEAST[0]}.{NODE_AT_LEAST[1]} or newer; install it and try again")
    return Path(found)


def _python(here, venv):
    _call(sys.executable, "-m", "venv", venv)
    _call(
        venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes",
        "--only-binary=:all:", "-r", here / "procrastinate/requirements.txt",
    )


def _once(folder, locks, fetch):
    """Fetches again only if a lock file has changed."""
    wanted = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()
    mark = folder / ".fetched"
    if mark.exists() and mark.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    fetch()
    mark.write_text(wanted)


def _call(program, *arguments, cwd=None):
    print(f"peers: {Path(program).name} {' '.join(map(str, arguments[:3]))} …", file=sys.stderr)
    env = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    done = subprocess.run([str(program), *map(str, arguments)], cwd=cwd, env=env, stdout=sys.stderr)
    if done.returncode != 0:
        raise SystemExit(f"{program} failed: see its output above")
