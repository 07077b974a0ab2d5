//! Describes the machine, so that figures can be read with it; its name is nobody's business.

use serde::{Deserialize, Serialize};
use std::fs;

/// What the figures depend on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// How many of them this process may use.
    pub cores: usize,
    /// The memory in bytes.
    pub memory_bytes: u64,
    /// The operating system's release.
    pub system: String,
    /// The kernel's release.
    pub kernel: String,
    /// Processes that wanted to run during the minute before the bench began; above the number of cores, the
    /// machine was busy with something else.
    pub load_before: f64,
    /// The day of the run, in UTC seconds since 1970.
    pub unix_seconds: u64,
}

impl Machine {
    /// Looks at this machine.
    pub fn here() -> Self {
        Self {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes().unwrap_or_default(),
            system: field("/etc/os-release", "PRETTY_NAME")
                .map_or_else(|| std::env::consts::OS.into(), |name| name.trim_matches('"').into()),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            load_before: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
            unix_seconds: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        let gibibytes = self.memory_bytes as f64 / f64::from(1 << 30);
        format!(
            "{}, {} cores, {gibibytes:.0} GiB, {}, kernel {}, load before {:.1}",
            self.processor, self.cores, self.system, self.kernel, self.load_before
        )
    }

    /// A warning, if others used the processors as well.
    pub fn caveat(&self) -> &'static str {
        if self.load_before > self.cores as f64 {
            " The machine was busy with something else: read the ratios and the counts, not the rates."
        } else {
            ""
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `key : value` or `key=value`.
fn field(path: &str, key: &str) -> Option<String> {
    let text = read(path);
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(rest.trim_start_matches([' ', '\t', ':', '=']).trim().into())
}

fn memory_bytes() -> Option<u64> {
    let kibibytes: u64 = field("/proc/meminfo", "MemTotal")?.trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described_without_its_name() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && !machine.kernel.is_empty(), "{machine:?}");
        let name = read("/proc/sys/kernel/hostname");
        assert!(name.trim().len() < 4 || !machine.line().contains(name.trim()), "{}", machine.line());
    }
}
