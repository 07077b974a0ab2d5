//! The file engine with several processes and users: deaths, pauses, shared and foreign directories, full disks.

#[path = "engine/directories.rs"]
mod directories;
#[path = "engine/hardship.rs"]
mod hardship;
#[path = "engine/processes.rs"]
mod processes;
#[path = "engine/runtimes.rs"]
mod runtimes;
#[path = "engine/support.rs"]
mod support;
