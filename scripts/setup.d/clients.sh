# Installs what tests clients/: Python with drivers, mypy and Alembic from PyPI, pinned in scripts/pins/clients.txt, and
# drivers and TypeScript from npm for the Node of node.sh, pinned in clients/typescript/package-lock.json.

is_clients_python() {
  [[ -x $1 ]] && cmp -s "${1%/bin/clients-python}/pins.txt" "$pins/clients.txt" && "$1" sqlparse --version >/dev/null 2>&1 </dev/null
}

find_clients_python() { first_that is_clients_python < <(printf '%s\n' {"$cache","$shared_cache"}/clients-python/bin/clients-python); }

# The program runs a module of its folder, as `python3 -m` does.
cache_clients_python() {
  add_to_cache clients-python clients-python 'downloading Python drivers with pip' unpack_python_program clients-python \
    'import runpy, sys; del sys.argv[0]; runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)' clients.txt
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
    node=$(ensure_node) || exit 1
    cache_clients_node "$node" && program=$(find_clients_node) || fail 'npm could not install the drivers of clients/typescript'
  fi
  log "the Node of the clients is $program"
  echo "$program"
}
