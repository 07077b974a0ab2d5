//! What every engine is held to: recorded histories, and the checker that judges them.

pub mod checker;
pub mod history;
