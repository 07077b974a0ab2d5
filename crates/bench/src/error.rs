//! Why a measurement, or the whole bench, did not come about.

/// Any failure, told in its own words: the bench notes it beside the figure that is missing, and goes on.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What the bench's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The command line asks for something that cannot be.
#[derive(Debug)]
pub struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
