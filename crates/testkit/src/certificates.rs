//! A private authority and a certificate for 127.0.0.1, made by the openssl command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Result, Trying};
use crate::{install, spawner};

const AUTHORITY: &str = "\
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = lockkeeper test authority
[extensions]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
";
const SERVER: &str = "\
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
";

/// The files, in PEM.
pub(crate) struct Certificates {
    /// The authority, whom clients are to trust.
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Makes a new authority and a server's certificate in a folder, valid for two days.
pub(crate) fn create(folder: &Path) -> Result<Certificates> {
    fs::write(folder.join("ca.cnf"), AUTHORITY).trying("write ca.cnf")?;
    fs::write(folder.join("server.ext"), SERVER).trying("write server.ext")?;
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req -x509 {new_key} -days 2 -config ca.cnf -keyout ca.key -out ca.crt"))?;
    openssl(folder, &format!("req -new {new_key} -subj /CN=localhost -keyout server.key -out server.csr"))?;
    openssl(
        folder,
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext \
         -out server.crt",
    )?;
    Ok(Certificates {
        authority: folder.join("ca.crt"),
        certificate: folder.join("server.crt"),
        key: folder.join("server.key"),
    })
}

fn openssl(folder: &Path, arguments: &str) -> Result<()> {
    let mut command = Command::new(install::program("openssl", "redis")?);
    command.args(arguments.split_whitespace()).current_dir(folder);
    spawner::run(command)
}
