//! One trust store for all engines: the system's, or what `SSL_CERT_FILE` names. Included by the tests of each engine that
//! speaks TLS.

use std::path::Path;
use std::process::Command;

/// In the process inside: the URLs to connect to.
const INSIDE: &str = "LOCKKEEPER_TEST_AUTHORITY";

/// Connects to each URL in a process whose environment names the server's authority: this program again, with the test
/// that calls this, which is named here. `start` returns the server with its authority and the URLs.
pub(crate) fn are_trusted<S, P: AsRef<Path>>(test: &str, start: impl FnOnce() -> (S, P, Vec<String>)) {
    if let Ok(urls) = std::env::var(INSIDE) {
        return tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
            for url in urls.lines() {
                lockkeeper::connect(url).await.expect(url).close().await;
            }
        });
    }
    let (_server, authority, urls) = start();
    let program = std::env::current_exe().expect("this program");
    let mut inside = Command::new(program);
    inside.args(["--exact", "--nocapture", test]).env("SSL_CERT_FILE", authority.as_ref());
    let output = inside.env(INSIDE, urls.join("\n")).output().expect("the test inside");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
