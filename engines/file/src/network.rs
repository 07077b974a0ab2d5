//! Refuses network file systems, on which this engine's file locks and watches do not work.
//! Only this engine depends on them.

use lockkeeper_core::{Error, Result};
use rustix::fd::AsFd;
use std::path::Path;

/// File systems of other machines, by the magic number that `statfs` gives.
const NETWORK: &[(u64, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB 2"),
    (0x6573_5546, "FUSE (sshfs and the like)"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564c, "NCP"),
    (0x2003_0528, "OrangeFS"),
    (0xaad7_aaea, "PanFS"),
    (0x4750_4653, "GPFS"),
    (0x786f_4256, "VirtualBox shared folders"),
    (0xbacb_acbc, "VMware shared folders"),
];

/// The name of the network file system with this magic number, if it is one.
fn network_file_system(magic: u64) -> Option<&'static str> {
    NETWORK.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

/// Fails if the directory is on a network file system.
pub(crate) fn refuse(directory: impl AsFd, path: &Path) -> Result<()> {
    let Some(name) = magic(directory).and_then(network_file_system) else { return Ok(()) };
    Err(Error::invalid(format!(
        "{} is on {name}, which other machines may share: a lock there would not hold between machines, for \
         neither file locks nor wake-ups reach across. Choose a local directory, or an engine with a server; if \
         only this machine uses it, add ?network=allow",
        path.display()
    )))
}

#[cfg(target_os = "linux")]
fn magic(directory: impl AsFd) -> Option<u64> {
    // The upper half is the sign of a 32-bit number on some platforms.
    rustix::fs::fstatfs(directory).ok().map(|stat| stat.f_type as u64 & 0xffff_ffff)
}

/// Elsewhere the numbers mean other things; the page says that network directories are not for this engine.
#[cfg(not(target_os = "linux"))]
fn magic(_directory: impl AsFd) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_other_machines_are_known_by_their_number() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "CIFS"),
            (0xfe53_4d42, "SMB 2"),
            (0x6573_5546, "FUSE (sshfs and the like)"),
            (0x0102_1997, "9p"),
            (0x00c3_6400, "Ceph"),
            (0x0bd0_0bd0, "Lustre"),
        ] {
            assert_eq!(network_file_system(magic), Some(name));
        }
    }

    #[test]
    fn local_file_systems_pass() {
        let (ext4, tmpfs, xfs, btrfs, overlay) = (0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630);
        for magic in [ext4, tmpfs, xfs, btrfs, overlay] {
            assert_eq!(network_file_system(magic), None);
        }
        let directory = std::fs::File::open(std::env::temp_dir()).unwrap();
        refuse(&directory, &std::env::temp_dir()).unwrap();
    }
}
