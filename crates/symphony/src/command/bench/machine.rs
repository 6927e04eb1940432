//! The machine on which the benchmark runs, from `/proc` and `uname`.

use std::fs;

use serde::Serialize;

/// The machine of the producers, the relayers, and of a private server.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    pub(super) cpus: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    os: String,
    /// Load average of the last minute at the start: other work makes all numbers worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    load_average: Option<f64>,
    /// A debug build is several times slower.
    build: &'static str,
}

impl Machine {
    pub(super) fn this() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let (cpuinfo, meminfo) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let value = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kilobytes = value(&meminfo, "MemTotal").and_then(|size| size.split(' ').next()?.parse::<u64>().ok());
        let system = rustix::system::uname();
        Self {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_model: value(&cpuinfo, "model name"),
            memory_bytes: kilobytes.map(|kilobytes| kilobytes * 1024),
            os: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
            load_average: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }

    /// Describes the machine on one line.
    pub(super) fn describe(&self) -> String {
        let model = self.cpu_model.as_deref().map(|model| format!(" of {model}")).unwrap_or_default();
        let load = self.load_average.map(|load| format!(", load {load}")).unwrap_or_default();
        format!("{} cores{model}, {}{load}, {} build", self.cpus, self.os, self.build)
    }
}
