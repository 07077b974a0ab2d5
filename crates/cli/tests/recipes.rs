//! The pages of recipes are true: every command on them is run, and prints what the page says.
//!
//! A recipe is a section of a page with its `console` blocks, run in one shell. A comment `<!-- test: COMMAND -->` makes the
//! files that the recipe speaks of, `<!-- test engine: postgres -->` starts a server for it. A command that ends with `&`
//! runs in the background, and the next one waits until its claim is there. Numbers, times, ids and the name of the machine
//! may differ.

mod support;

use lockkeeper_testkit::{Etcd, Postgres};
use std::process::Command;
use support::Place;

const RECIPES: &str = "docs/recipes.md";
const README: &str = "README.md";
const FIRST_LOCK: &str = "docs/book/first-lock.md";
const CLI: &str = "docs/cli.md";
const COMING_FROM: &str = "docs/book/coming-from.md";

fn page(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// One section of the page.
#[derive(Debug, Default)]
struct Recipe {
    title: String,
    /// Its engine, if a server is to be started for it.
    engine: Option<String>,
    /// What is run before, and is not shown.
    setup: Vec<String>,
    steps: Vec<Step>,
    /// Whether it has a program, which the facade's documentation tests compile and run.
    has_program: bool,
}

/// A command and what the page says it prints.
#[derive(Debug)]
struct Step {
    command: String,
    prints: Vec<String>,
}

fn recipes(page: &str) -> Vec<Recipe> {
    let mut recipes: Vec<Recipe> = Vec::new();
    let mut in_block = false;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            recipes.push(Recipe { title: title.into(), ..Recipe::default() });
        }
        let Some(recipe) = recipes.last_mut() else { continue };
        let comment = |start| line.strip_prefix(start).and_then(|rest: &str| rest.strip_suffix(" -->"));
        if let Some(command) = comment("<!-- test: ") {
            recipe.setup.push(command.into());
        } else if let Some(engine) = comment("<!-- test engine: ") {
            assert!(["postgres", "etcd"].contains(&engine), "no recipe may ask for {engine}");
            recipe.engine = Some(engine.into());
        } else if line.starts_with("```") {
            in_block = line == "```console";
            recipe.has_program |= line == "```rust";
        } else if in_block {
            match (line.strip_prefix("$ "), recipe.steps.last_mut()) {
                (Some(command), _) => {
                    recipe.steps.push(Step { command: command.into(), prints: Vec::new() });
                }
                (None, Some(step)) => step.prints.push(line.into()),
                (None, None) => panic!("'{}' prints before a command: {line}", recipe.title),
            }
        }
    }
    recipes
}

/// Separates the output of one step from the next.
const MARK: &str = "@@ the end of a step";

const PRELUDE: &str = r#"
claims() { lockkeeper ls --json | grep -c '"standing"'; }
until_more_than() { until [ "$(claims)" -gt "$1" ]; do sleep 0.02; done; }
set -m
"#;

/// All jobs end, each with its process group, so that nothing outlives the test: `etcdctl lock` waits for its command.
const END: &str = "for job in $(jobs -p); do kill -- -$job; done 2>/dev/null; wait 2>/dev/null; exit 0\n";

impl Recipe {
    fn is_on(&self, engine: &str) -> bool {
        self.engine.as_deref() == Some(engine)
    }

    fn script(&self) -> String {
        let mut script = PRELUDE.to_owned();
        for command in &self.setup {
            script += &format!("{command}\n");
        }
        for Step { command, .. } in &self.steps {
            match command.strip_suffix(" &") {
                Some(command) => {
                    script += &format!("before=$(claims)\n{command} >> background.log 2>&1 </dev/null &\n");
                    script += "until_more_than \"$before\"\n";
                }
                // The status is still there for the next step.
                None => script += &format!("{command}\n"),
            }
            script += &format!("status=$?; echo '{MARK}'; (exit $status)\n");
        }
        script + END
    }

    /// Runs it, and compares each step with the page.
    fn check(&self) {
        let place = Place::new();
        let postgres = self.is_on("postgres").then(Postgres::start);
        let etcd = self.is_on("etcd").then(Etcd::start);
        let script = place.path("recipe.sh");
        std::fs::write(&script, format!("exec 2>&1\n{}", self.script())).unwrap();
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=1", "120", "bash"]).arg(&script).current_dir(place.dir.path());
        shell.env("COLUMNS", "160").env("LOCKKEEPER_URL", place.url()).env("PATH", path());
        if let Some(server) = &postgres {
            let url = server.url();
            let (user, rest) = url.trim_start_matches("postgres://").split_once('@').unwrap();
            shell.env("PGUSER", user).env("PGHOST", "127.0.0.1").env("PGPORT", server.port().to_string());
            shell.env("PGDATABASE", rest.split_once('/').unwrap().1).env("LOCKKEEPER_URL", &url);
        }
        if let Some(server) = &etcd {
            // The claims of every client have no prefix, and this shows them.
            shell.env("LOCKKEEPER_URL", format!("{}?namespace=", server.url()));
            shell
                .env("ETCDCTL_API", "3")
                .env("ETCDCTL_ENDPOINTS", format!("127.0.0.1:{}", server.servers()[0].port()));
        }
        let output = shell.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let printed: Vec<&str> = text.split(&format!("{MARK}\n")).collect();
        assert_eq!(printed.len(), self.steps.len() + 1, "'{}' came only so far:\n{text}", self.title);
        for (step, printed) in self.steps.iter().zip(printed) {
            let expected: Vec<String> = step.prints.iter().map(|line| alike(line)).collect();
            let found: Vec<String> = printed.lines().map(alike).collect();
            assert_eq!(found, expected, "'{}': $ {}\n{printed}", self.title, step.command);
        }
    }
}

/// The binary's folder before the others.
fn path() -> String {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_lockkeeper")).parent().unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// A line without what differs from run to run: `#` for every word with a digit, and the name of the machine.
fn alike(line: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let line = line.split(' ').map(|word| match word {
        _ if word == host => "app-1".into(),
        _ if word == format!("({host},") => "(app-1,".into(),
        _ if word == format!("host={host}") => "host=app-1".into(),
        other => other.to_owned(),
    });
    let line = line.collect::<Vec<_>>().join(" ");
    let mut words = vec![String::new()];
    for c in line.chars() {
        let is_part = c.is_alphanumeric() || c == '.';
        let last = words.last_mut().expect("one word at least");
        match last.chars().next_back() {
            Some(before) if (before.is_alphanumeric() || before == '.') == is_part => last.push(c),
            None => last.push(c),
            Some(_) => words.push(c.to_string()),
        }
    }
    let words = words.into_iter().map(|word| match word.contains(|c: char| c.is_ascii_digit()) {
        true => "#".to_owned(),
        false => word,
    });
    let line: String = words.collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn check(path: &str, title: &str) {
    recipes(&page(path)).iter().find(|recipe| recipe.title == title).expect("a recipe").check();
}

macro_rules! recipes {
    ($($name:ident: $page:ident, $title:literal;)*) => {
        $(
            #[test]
            fn $name() {
                check($page, $title);
            }
        )*

        #[test]
        fn every_recipe_of_the_pages_is_run() {
            let mut titles = Vec::new();
            for path in [README, FIRST_LOCK, RECIPES, CLI, COMING_FROM] {
                let shown = recipes(&page(path)).into_iter().filter(|recipe| !recipe.steps.is_empty());
                titles.extend(shown.map(|recipe| (path, recipe.title)));
            }
            assert_eq!(titles, [$(($page, $title.to_owned())),*]);
            let is_run = |recipe: &Recipe| !recipe.steps.is_empty() || recipe.has_program;
            assert!(recipes(&page(RECIPES)).iter().all(is_run));
        }
    };
}

recipes! {
    the_readme: README, "The queue";
    the_first_lock: FIRST_LOCK, "In a shell";
    nightly: RECIPES, "A nightly job on two machines, once";
    a_migration: RECIPES, "A migration at deploy";
    a_leader: RECIPES, "A leader with fail-over";
    who_holds: RECIPES, "Who holds it, and why";
    permits: RECIPES, "Four GPUs for everybody";
    readers: RECIPES, "Readers and a writer";
    steps: RECIPES, "The steps of a CI job";
    terraform: RECIPES, "Terraform";
    a_job_queue: RECIPES, "A job queue";
    from_queue_to_worker: RECIPES, "A lock from the queue to the worker";
    several: RECIPES, "Several locks at once";
    fenced: RECIPES, "A write that a late holder cannot spoil";
    one_step_to_the_next: CLI, "Held from one step to the next";
    looking: CLI, "ls, show, watch";
    beside_etcdctl: COMING_FROM, "etcd concurrency";
}
