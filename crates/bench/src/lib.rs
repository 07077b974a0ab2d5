//! Measures lockkeeper's engines on this machine, each beside the raw floor of its driver.
//!
//! Read the files in this order: `command` (what is asked), `target` and `servers` (what is measured),
//! `scale` (how much), `plan` (in which order: interleaved and repeated), `workload` (the loops), `floors` (the
//! same requests with no lockkeeper code), `counters` (what the servers say they were asked), `measure` and
//! `summary` (the statistics), `table`, `markdown` and `report` (what is shown). `kit` is for comparisons with others.
//!
//! Figures of different runs, or of different machines, must not be compared: ratios within one run may.

mod bend;
pub mod command;
mod counters;
mod error;
mod floors;
mod helper;
pub mod kit;
pub mod machine;
pub mod markdown;
pub mod measure;
pub mod network;
mod plan;
mod process;
mod progress;
pub mod report;
mod runtime;
pub mod scale;
mod servers;
pub mod summary;
pub mod table;
mod target;
mod workload;

pub use error::{Error, Result, Usage};
pub use workload::Workload;
