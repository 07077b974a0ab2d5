//! Tables by lock. A name may be anybody's choice, so it is hashed with a seed of its own, but quickly: each lock and release
//! looks several times.

use crate::name::LockName;
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

/// A table with an entry for each of some locks.
pub type NameMap<V> = HashMap<LockName, V, RandomState>;

/// Some locks.
pub type NameSet = HashSet<LockName, RandomState>;
