//! On which processors this process and the servers that it started run, for those who measure.
//!
//! A question and its answer take some 25 µs where both sides share a processor, and three to five times as long where one of them
//! has to be woken. Left alone, the system chooses now this and now that, for seconds at a time: of two connections that did the
//! very same, one had 0.6 to 1.5 times the pairs of the other.

use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Where the two sides of a connection run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Wherever the system puts them.
    #[default]
    Free,
    /// Both on one processor: what is measured is the work that they do.
    Together,
    /// This process on one, the servers on the others: what is measured is mostly how long it takes to wake somebody.
    Apart,
}

impl Placement {
    /// What [`FromStr`] takes.
    pub const NAMES: [&str; 3] = ["free", "together", "apart"];

    /// Those in which to measure one task: fixed ones, as far as this machine has processors for them, unless the server is somebody
    /// else's and cannot be moved.
    pub fn of_one_task(has_own_server: bool) -> &'static [Self] {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        match (has_own_server, processors) {
            (false, _) => &[Self::Free],
            (true, 1) => &[Self::Together],
            (true, _) => &[Self::Together, Self::Apart],
        }
    }

    /// Puts this process, and every process that it has started, where it says, until what this returns is dropped. What they start
    /// from now on is put there, too. Only one at a time makes sense.
    ///
    /// # Errors
    /// When there are not enough processors, or somebody must not be moved.
    pub fn hold(self) -> io::Result<Placed> {
        let everywhere = sched_getaffinity(None)?;
        let mut all = (0..CpuSet::MAX_CPU).filter(|&processor| everywhere.is_set(processor));
        // The last one: the first has more than others to do for the system.
        let last = all.next_back().into_iter().collect::<Vec<_>>();
        let others = all.collect::<Vec<_>>();
        let (own, servers) = match self {
            Self::Free => return Ok(Placed(None)),
            Self::Together => (&last, &last),
            Self::Apart if others.is_empty() => return Err(io::Error::other("there is only one processor")),
            Self::Apart => (&last, &others),
        };
        // From here on, whatever goes wrong is undone.
        let placed = Placed(Some(everywhere));
        place(&set(own), &set(servers))?;
        Ok(placed)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::NAMES[*self as usize])
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Free, Self::Together, Self::Apart];
        let found = all.into_iter().find(|placement| placement.to_string() == name);
        found.ok_or_else(|| format!("unknown placement '{name}'; known: {}", Self::NAMES.join(", ")))
    }
}

/// While it lives, all are where they were put; then they are free again.
#[derive(Debug)]
#[must_use = "when it is dropped, all are free again"]
pub struct Placed(Option<CpuSet>);

impl Drop for Placed {
    fn drop(&mut self) {
        if let Some(everywhere) = self.0.take() {
            // Nothing can be done about what could not be moved.
            let _ = place(&everywhere, &everywhere);
        }
    }
}

fn set(processors: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    processors.iter().for_each(|&processor| set.set(processor));
    set
}

/// A thread that is started meanwhile is where the one is that started it, hence the second time.
fn place(own: &CpuSet, servers: &CpuSet) -> io::Result<()> {
    for _ in 0..2 {
        let myself = std::process::id();
        move_threads(myself, own)?;
        for child in descendants(myself) {
            move_threads(child, servers)?;
        }
    }
    Ok(())
}

fn move_threads(process: u32, processors: &CpuSet) -> io::Result<()> {
    for thread in threads(process) {
        match sched_setaffinity(Pid::from_raw(thread.cast_signed()), processors) {
            // It has ended meanwhile.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn threads(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processes that this one has started, and those that they have started.
fn descendants(process: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for thread in threads(process) {
        let children =
            fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// A process that has started another, and waits for it.
    fn family() -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat; true"]).stdin(Stdio::piped()).spawn().expect("a shell")
    }

    fn processors(process: u32) -> String {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("its processors").trim().to_owned()
    }

    #[test]
    fn a_process_and_its_descendants_are_put_where_told_and_freed_again() {
        let mut shell = family();
        let started = || descendants(shell.id()).len() == 1;
        crate::wait_until("the shell starts the other", Duration::from_secs(20), started);
        let all = [shell.id(), descendants(shell.id())[0]];
        let own = std::process::id();
        let before = processors(own);

        let together = Placement::Together.hold().expect("one processor");
        let here = processors(own);
        assert!(here.parse::<usize>().is_ok(), "one processor: {here}");
        assert_eq!(all.map(processors), [here.clone(), here.clone()]);
        drop(together);
        assert_eq!([own, all[0], all[1]].map(processors), [before.clone(), before.clone(), before.clone()]);

        match Placement::Apart.hold() {
            Ok(_apart) => {
                assert_eq!(processors(own), here);
                assert!(all.iter().all(|&child| processors(child) != here));
                assert_eq!(processors(all[0]), processors(all[1]));
            }
            Err(error) => assert!(before.parse::<usize>().is_ok(), "{error}, but there are {before}"),
        }
        assert_eq!(processors(own), before);

        let _free = Placement::Free.hold().expect("nothing to do");
        assert_eq!(processors(all[1]), before);
        drop(shell.stdin.take());
        shell.wait().expect("it ends with its input");
    }

    #[test]
    fn names_are_read_as_written() {
        for name in Placement::NAMES {
            assert_eq!(name.parse::<Placement>().expect("a name").to_string(), name);
        }
        assert!("beside".parse::<Placement>().unwrap_err().contains("together"));
    }
}
