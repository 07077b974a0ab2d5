//! Connections by TLS: what each `sslmode` encrypts, verifies and refuses.

use crate::authorities::are_trusted;
use lockkeeper::{Keeper, Result};
use lockkeeper_testkit::Postgres;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use tokio_postgres::{Client, NoTls};

async fn client(server: &Postgres) -> Client {
    let url = format!("{}?sslmode=disable", server.url());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// How many connections of lockkeeper there are with or without TLS.
async fn connections(client: &Client, encrypted: bool) -> i64 {
    let count = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'lockkeeper' AND ssl = $1";
    client.query_one(count, &[&encrypted]).await.expect("a count").get(0)
}

async fn connect(server: &Postgres, query: &str) -> Result<Keeper> {
    lockkeeper::connect(format!("{}?{query}", server.url())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_verified_and_every_connection_encrypted() {
    let server = Postgres::start_tls();
    let client = client(&server).await;
    let refused =
        connect(&server, "sslmode=verify-full").await.expect_err("nobody vouches for it").to_string();
    assert!(refused.contains("certificate"), "{refused}");
    for style in lockkeeper_postgres::STYLES.iter().map(|style| style.style) {
        let query = format!("style={style}&sslmode=verify-full&sslrootcert={}", server.ca().display());
        let keeper = connect(&server, &query).await.expect(style);
        let guard = keeper.mutex("secret").lock().await.expect(style);
        assert_eq!(connections(&client, false).await, 0, "{style}");
        guard.release().await.expect(style);
        keeper.close().await;
    }
}

/// The address 127.0.0.2 is not in the certificate.
#[tokio::test(flavor = "multi_thread")]
async fn each_mode_checks_what_libpq_checks() {
    let server = Postgres::start_tls_with(&["listen_addresses=127.0.0.1,127.0.0.2"]);
    let stranger = Postgres::start_tls();
    let (client, ca, other) = (client(&server).await, server.ca(), stranger.ca());
    let other_name = server.url().replace("127.0.0.1", "127.0.0.2");
    let connect = async |mode: &str, ca: Option<&Path>| {
        let ca = ca.map_or(String::new(), |path| format!("&sslrootcert={}", path.display()));
        lockkeeper::connect(format!("{other_name}?style=row{mode}{ca}")).await
    };
    for (mode, ca, encrypted) in [
        ("", None, true),
        ("&sslmode=disable", None, false),
        ("&sslmode=allow", None, false),
        ("&sslmode=prefer", None, true),
        ("&sslmode=require", None, true),
        ("&sslmode=require", Some(&*ca), true),
        ("&sslmode=verify-ca", Some(&*ca), true),
    ] {
        let keeper = connect(mode, ca).await.unwrap_or_else(|error| panic!("{mode} {ca:?}: {error}"));
        keeper.mutex("mode").lock().await.expect(mode).release().await.expect(mode);
        assert_eq!(connections(&client, !encrypted).await, 0, "{mode} {ca:?}");
        keeper.close().await;
    }
    for (mode, ca) in [
        ("&sslmode=prefer", Some(&*other)),
        ("&sslmode=require", Some(&*other)),
        ("&sslmode=verify-ca", Some(&*other)),
        ("&sslmode=verify-ca", None),
        ("&sslmode=verify-full", Some(&*ca)),
        ("", Some(Path::new("system"))),
    ] {
        let refused = connect(mode, ca).await.expect_err(mode).to_string();
        assert!(refused.contains("certificate") && refused.contains("sslmode"), "{mode} {ca:?}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_at_the_server_only_those_connect_that_need_none() {
    let server = Postgres::start();
    for mode in ["", "sslmode=prefer", "sslmode=allow", "sslmode=disable"] {
        connect(&server, mode).await.expect(mode).close().await;
    }
    for mode in ["sslmode=require", "sslmode=verify-full", "sslrootcert=system"] {
        let refused = connect(&server, mode).await.expect_err(mode).to_string();
        assert!(refused.contains("does not support TLS"), "{mode}: {refused}");
    }
}

/// A server that says it has TLS and then breaks the handshake may be an attacker who wants to read along.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_handshake_is_not_followed_by_plaintext() {
    const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let attacker = std::thread::spawn(move || {
        let (mut first, _) = listener.accept().expect("a connection");
        let mut request = [0; 8];
        first.read_exact(&mut request).expect("a request");
        first.write_all(b"Sbroken").expect("a reply");
        drop(first);
        // What the diagnosis of a failed connection sends is no login.
        listener.set_nonblocking(true).expect("a setting");
        std::thread::sleep(std::time::Duration::from_secs(1));
        let mut logins = 0;
        while let Ok((mut next, _)) = listener.accept() {
            let mut start = Vec::new();
            let _ = next.set_read_timeout(Some(std::time::Duration::from_millis(200)));
            let _ = next.read_to_end(&mut start);
            logins += usize::from(start.windows(5).any(|part| part == b"user\0"));
        }
        (request, logins)
    });
    lockkeeper::connect(format!("postgres://ann:secret@127.0.0.1:{port}/shop")).await.expect_err("no server");
    let (request, logins) = attacker.join().expect("no panic");
    assert_eq!((request, logins), (TLS_REQUEST, 0));
}

/// Replaces the rules for logins.
async fn set_rules(server: &Postgres, client: &Client, rules: &str) {
    fs::write(
        server.directory().join("data/pg_hba.conf"),
        format!("host all all 127.0.0.3/32 trust\n{rules}\n"),
    )
    .expect("a file");
    client.batch_execute("SELECT pg_reload_conf()").await.expect("a reload");
    let ours = rules.split(' ').next().expect("a word");
    let read = "SELECT count(*) FROM pg_hba_file_rules WHERE type = $1";
    while client.query_one(read, &[&ours]).await.expect("a count").get::<_, i64>(0) == 0 {}
}

fn openssl(folder: &Path, arguments: &str) {
    let done =
        Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().expect("openssl");
    assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_demands_tls_or_a_certificate_gets_it() {
    let server = Postgres::start_tls_with(&["ssl_ca_file=../ca.crt"]);
    let (admin, folder) = (client(&server).await, server.directory());
    set_rules(&server, &admin, "hostssl all all all trust").await;
    let refused = connect(&server, "sslmode=disable").await.expect_err("it demands TLS").to_string();
    assert!(refused.contains("no encryption"), "{refused}");
    for mode in ["sslmode=allow", "sslmode=prefer"] {
        let keeper = connect(&server, mode).await.expect(mode);
        assert!(connections(&admin, true).await > 0, "{mode}");
        keeper.close().await;
    }
    set_rules(&server, &admin, "hostssl all all all cert").await;
    connect(&server, "sslmode=require").await.expect_err("it demands a certificate");
    fs::write(folder.join("client.ext"), "basicConstraints = CA:FALSE\n").expect("a file");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(folder, &format!("req -new {key} -subj /CN=postgres -keyout client.key -out client.csr"));
    openssl(
        folder,
        "x509 -req -in client.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile client.ext -out client.crt",
    );
    let path = |name: &str| folder.join(name).display().to_string();
    let query = format!("sslmode=require&sslcert={}&sslkey={}", path("client.crt"), path("client.key"));
    let keeper = connect(&server, &query).await.expect("a certificate is enough");
    keeper.mutex("mine").lock().await.expect("a grant").release().await.expect("a release");
}

/// The authorities of the system are those of every engine; here the environment names them.
#[test]
fn the_authorities_of_the_system_are_trusted() {
    are_trusted("tls::the_authorities_of_the_system_are_trusted", || {
        let server = Postgres::start_tls();
        let queries = ["sslmode=verify-full", "sslmode=verify-ca", "sslrootcert=system"];
        let urls = queries.map(|query| format!("{}?{query}", server.url())).to_vec();
        let authority = server.ca();
        (server, authority, urls)
    });
}
