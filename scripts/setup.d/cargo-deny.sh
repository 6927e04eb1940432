# Builds cargo-deny, which checks licences and sources of dependencies: from crates.io, pinned in
# scripts/pins/cargo-deny/.

pinned_cargo_deny() { sed -nE 's/^cargo-deny = "=(.*)"$/\1/p' "$pins/cargo-deny/Cargo.toml"; }

# Another version may read deny.toml differently.
is_cargo_deny() { [[ -x $1 && $("$1" --version 2>/dev/null </dev/null) == "cargo-deny $(pinned_cargo_deny)" ]]; }

find_cargo_deny() {
  first_that is_cargo_deny < <(program_candidates SYMPHONY_CARGO_DENY cargo-deny cargo-deny cargo-deny)
}

# Builds it into $1/tree/bin. cargo checks it by the hash in our lock file, and its dependencies by its own lock file.
# Without optimisation the build takes 40 s on two cores instead of minutes, and a check takes 2 s.
build_cargo_deny() {
  local manifest=$pins/cargo-deny/Cargo.toml source
  cargo fetch --quiet --locked --manifest-path "$manifest" >&2 || return 1
  source=$(cargo metadata --quiet --locked --offline --format-version 1 --manifest-path "$manifest" |
    grep -oE '"manifest_path":"[^"]*/cargo-deny-[0-9.]+/Cargo.toml"' | cut -d '"' -f 4) || return 1
  CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$1/target cargo install --quiet --locked --debug --no-track \
    --path "${source%/Cargo.toml}" --root "$1/tree" >&2 || return 1
  chmod -R a+rX "$1/tree"
}

cache_cargo_deny() {
  add_to_cache cargo-deny cargo-deny "building cargo-deny $(pinned_cargo_deny)" build_cargo_deny
}

ensure_cargo_deny() {
  local program version
  if ! program=$(find_cargo_deny); then
    ensure_linker
    have cargo && cache_cargo_deny && program=$(find_cargo_deny) || {
      version=$(pinned_cargo_deny)
      fail "found no cargo-deny $version: run 'cargo install --locked cargo-deny@$version'," \
        "or set SYMPHONY_CARGO_DENY to the program"
    }
  fi
  log "cargo-deny is $program"
  echo "$program"
}
