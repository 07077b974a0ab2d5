//! The command line of lockkeeper: runs commands under a lock, and shows who holds and who waits.

mod arguments;
mod child;
mod commands;
mod complete;
mod exit;
mod handles;
mod json;
mod location;
mod lookup;
mod output;
mod signals;
mod supervise;
mod table;
mod terminal;
mod waiting;

fn main() {
    #[cfg(feature = "serve")]
    for scheme in lockkeeper_client::SCHEMES {
        // It fails only if the scheme is taken, and it is not.
        let _ = lockkeeper::register(scheme, lockkeeper_client::connect);
    }
    // A worker is this program, started again by torture.
    #[cfg(feature = "torture")]
    lockkeeper_faults::answer();
    complete::answer();
    let status = match arguments::parse() {
        Ok(arguments) => exit::report(commands::run(arguments)),
        Err(status) => status,
    };
    // Leaves the runtime as it is: everything worth waiting for has been awaited.
    std::process::exit(status.into());
}
