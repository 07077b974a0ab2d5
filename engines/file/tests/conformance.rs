//! The conformance suite on the file engine.

use lockkeeper_conformance::{Subject, Suite};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn main() -> std::process::ExitCode {
    Suite::new(lockkeeper_file::STYLES[0]).run(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().join("locks");
        Subject::at(format!("file:{}", root.display())).keep(directory).restart(move || restart(&root))
    })
}

/// Leaves every gate as a start of the machine would: of an earlier run, and without the numbers that were not
/// yet on the disk. What was reserved on the disk stays.
fn restart(root: &Path) {
    for shard in std::fs::read_dir(root).expect("the shards") {
        let path = shard.expect("a shard").path().join("gate");
        let Ok(gate) = std::fs::File::options().read(true).write(true).open(path) else { continue };
        gate.lock().expect("the gate");
        let mut bytes = [0; 48];
        if gate.read_exact_at(&mut bytes, 0).is_ok() {
            bytes[8] ^= 1;
            bytes[24..32].copy_from_slice(&1u64.to_le_bytes());
            let check = fnv_1a(&bytes[..40]).to_le_bytes();
            bytes[40..].copy_from_slice(&check);
            gate.write_all_at(&bytes, 0).expect("the numbers");
        }
    }
}

fn fnv_1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
