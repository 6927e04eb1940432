# Installs a C linker for cargo: Debian's gcc and libc6-dev, with apt-get. No pin file: the system's version is used.

ensure_linker() {
  if have cc; then return; fi
  if can_apt_install && apt_install gcc libc6-dev; then return; fi
  fail "cargo needs a C linker, and found no cc: $(install_hint gcc libc6-dev)"
}
