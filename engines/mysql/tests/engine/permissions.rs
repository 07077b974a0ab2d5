//! The rights that the engine's page names are enough: to create and migrate, and to use what somebody else has created.

use lockkeeper_testkit::MariaDb;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const PAGE: &str = include_str!("../../README.md");

/// A user with the first rights of the page on the test's database. Rights on single tables would do, too.
fn tenant(rights: usize) -> String {
    let (_, rest) = PAGE.split_once("```sql\n").expect("the page has the statements");
    let (statements, _) = rest.split_once("```").expect("the statements end");
    let grants: Vec<&str> = statements.lines().filter(|line| line.contains(" shop.* ")).collect();
    assert_eq!(grants.len(), 2, "to use, and to create: {statements}");
    let user = "CREATE USER IF NOT EXISTS tenant@'%' IDENTIFIED BY 'open sesame';\n";
    user.to_owned() + &grants[..rights].join("\n").replace(" shop.* ", " lockkeeper.* ")
}

/// A keeper that may do what the page's rights allow and no more.
pub(crate) fn tenant_url(server: &MariaDb, style: &str) -> String {
    format!("{}?style={style}", server.url().replace("root@", "tenant:open%20sesame@"))
}

/// Makes the user that may create and migrate.
pub(crate) fn let_tenant_create(server: &MariaDb) {
    administer(server, &tenant(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_all_rights_of_the_page_creates_every_style() {
    let server = MariaDb::start();
    let_tenant_create(&server);
    for style in lockkeeper_mysql::STYLES.iter().map(|style| style.style) {
        let keeper = lockkeeper::connect(tenant_url(&server, style)).await.expect(style);
        keeper.mutex("created").lock().await.expect(style).release().await.expect(style);
    }
}

/// Lets the client program run this: it has to understand what is printed.
pub(crate) fn administer(server: &MariaDb, statements: &str) {
    let mut mariadb = Command::new("mariadb")
        .args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=root", "lockkeeper"])
        .arg(format!("--port={}", server.port()))
        .stdin(Stdio::piped())
        .spawn()
        .expect("the client program");
    mariadb.stdin.take().expect("a pipe").write_all(statements.as_bytes()).expect("room in the pipe");
    assert!(mariadb.wait().expect("an end").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_just_these_rights_has_every_style() {
    let server = MariaDb::start();
    administer(&server, &tenant(1));
    for style in lockkeeper_mysql::STYLES.iter().map(|style| style.style) {
        let url = |user| format!("{}?style={style}", server.url().replace("root@", user));
        let refused = lockkeeper::connect(url("tenant:sesame@")).await.expect_err("a wrong word").to_string();
        assert!(refused.contains("Access denied"), "{style}: {refused}");
        let url = tenant_url(&server, style);
        let refused = lockkeeper::connect(&url).await.expect_err("it may not create anything").to_string();
        assert!(refused.contains("lockkeeper schema mysql"), "{style}: {refused}");

        administer(&server, lockkeeper_mysql::schema(style));
        let keepers =
            [lockkeeper::connect(&url).await.expect(style), lockkeeper::connect(&url).await.expect(style)];
        let guard = keepers[0].mutex("permitted").lock().await.expect(style);
        let other = keepers[1].mutex("permitted");
        assert!(other.try_lock().await.expect(style).is_none(), "{style}");
        let waiting = tokio::spawn(async move { other.lock().await });
        // In the advisory style a hold is shown after a moment.
        let shown = async {
            while keepers[1].inspect("permitted").await.expect(style).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), shown).await.expect(style);
        guard.release().await.expect(style);
        drop(waiting.await.expect("no panic").expect(style));
    }
}
