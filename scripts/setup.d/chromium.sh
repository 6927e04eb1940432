# Installs Chromium with a font: Debian's packages, with apt-get or unpacked into the cache.
# No pin file: apt-get chooses the version.

is_chromium() { [[ -x $1 && $("$1" --no-sandbox --version 2>/dev/null </dev/null) =~ (Chromium|Chrome)\ [0-9] ]]; }

find_chromium() {
  first_that is_chromium < <(program_candidates SYMPHONY_CHROMIUM chromium chromium \
    chromium chromium-browser google-chrome-stable google-chrome)
}

unpack_chromium() {
  local libraries names='lib|chromium-common|fontconfig-config|fonts-dejavu-core'
  libraries=$(unpack_debs "$1" "$names" chromium fonts-dejavu-core) || return 1
  # Debian's own start script expects the files in the system's folders: run the program directly.
  write_wrapper "$1" chromium "$libraries" '' usr/lib/chromium/chromium
}

cache_chromium() { add_to_cache chromium chromium "unpacking Debian's Chromium" unpack_chromium; }
ensure_chromium() { ensure_debian_program chromium Chromium SYMPHONY_CHROMIUM chromium fonts-dejavu-core; }
