//! What a comparison with other libraries needs of this bench: its servers, its runtimes, its counters.

pub use crate::counters::Count;
pub use crate::runtime::{Threads, run};
pub use crate::servers::Servers;
pub use crate::target::fresh_name;
