//! The same rooms in every engine, pages and lines of a length that can be read, scripts that are checked.

use super::{engines, files_below, no_complaints, root};
use std::path::Path;

/// The files that engines have: one for each style, and one for each job that all of them have.
const ROOMS: &[&str] = &[
    "lib",
    "config",
    "connection",
    "queue",
    "plain",
    "row",
    "session",
    "advisory",
    "wake",
    "keys",
    "batch",
    "view",
    "error",
    "schema",
    "tests",
];
/// What marks the reason in the first paragraph of a file that is no such room: only this engine needs it, or it stands apart.
const REASONS: &[&str] = &["only", "Only", "alone", "Apart"];
/// The most source files that an engine may have, without its tests.
const MOST_FILES: &[(&str, usize)] = &[("mysql", 14), ("postgres", 14), ("redis", 14), ("zookeeper", 18)];
/// Engines whose rooms are still to be put in order; may only shrink.
const ROOMS_LEFT: &[&str] = &[];

const PAGE_LINES: usize = 120;
const PAGE_WIDTH: usize = 120;
/// Engines whose page is still too long or too wide; may only shrink.
const PAGES_LEFT: &[&str] = &[];

/// The sections of every engine's page, in this order.
const SECTIONS: [&str; 9] = [
    "What it is",
    "URL and parameters",
    "How a lock looks inside",
    "Connections",
    "What wakes a waiter",
    "What frees a lock after a crash",
    "Tokens",
    "What can break it, and what it cannot do",
    "Permissions needed",
];
/// Engines without a server.
const NO_CONNECTIONS: [&str; 2] = ["file", "sqlite"];

/// Rustfmt keeps code below 110, but not comments and texts.
const LINE_WIDTH: usize = 140;
/// Files with longer lines; may only shrink.
const LINES_LEFT: &[&str] = &[];

/// Folders with Lua scripts that luacheck does not check yet; may only shrink.
const LUA_LEFT: &[&str] = &[];

/// Complains about all but those who are known to be behind, and about those who no longer are.
fn except(left: &[&str], complaints: Vec<(String, String)>) {
    let is_left = |name: &str| left.contains(&name);
    let caught_up = left.iter().filter(|name| !complaints.iter().any(|(of, _)| of == *name));
    let mut all: Vec<String> =
        caught_up.map(|name| format!("{name} has caught up: take it off the list")).collect();
    all.extend(complaints.into_iter().filter(|(of, _)| !is_left(of)).map(|(_, complaint)| complaint));
    no_complaints(all);
}

fn name(engine: &Path) -> String {
    engine.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn every_engine_has_the_same_rooms() {
    let mut complaints = Vec::new();
    for engine in engines() {
        let engine = name(&engine);
        let mut count = 0;
        let source = format!("engines/{engine}/src/");
        for (path, text) in files_below(&source).filter(|(path, _)| path.ends_with(".rs")) {
            let inside = path[source.len()..].trim_end_matches(".rs").to_owned();
            // Neither tests nor what is fuzzed is a part of the engine.
            if inside == "fuzzing"
                || inside.starts_with("tests/")
                || inside.ends_with("/tests")
                || super::is_generated(&text)
            {
                continue;
            }
            count += 1;
            let room = inside.split('/').next().unwrap_or_default();
            let paragraph: Vec<&str> =
                text.lines().take_while(|line| line.len() > 3 && line.starts_with("//!")).collect();
            let has_reason = REASONS.iter().any(|word| paragraph.join(" ").contains(word));
            if !ROOMS.contains(&room) && !has_reason {
                let complaint = format!(
                    "{path}: other engines have no such file; say in its first lines why this one does"
                );
                complaints.push((engine.clone(), complaint));
            }
        }
        let most = MOST_FILES.iter().find(|(of, _)| *of == engine).map_or(usize::MAX, |(_, most)| *most);
        if count > most {
            complaints.push((engine.clone(), format!("{source}: {count} files; {most} are enough")));
        }
    }
    except(ROOMS_LEFT, complaints);
}

#[test]
fn every_engines_page_can_be_read_at_once() {
    let mut complaints = Vec::new();
    for engine in engines() {
        let text = std::fs::read_to_string(engine.join("README.md")).unwrap_or_default();
        let engine = name(&engine);
        let lines = text.lines().count();
        if lines > PAGE_LINES {
            complaints.push((
                engine.clone(),
                format!("engines/{engine}/README.md: {lines} lines; at most {PAGE_LINES}"),
            ));
        }
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.chars().count() > PAGE_WIDTH) {
            let complaint =
                format!("engines/{engine}/README.md:{}: {} characters", number + 1, line.chars().count());
            complaints.push((engine.clone(), complaint));
        }
    }
    except(PAGES_LEFT, complaints);
}

#[test]
fn every_engines_page_has_the_same_sections() {
    let mut complaints = Vec::new();
    for engine in engines() {
        let text = std::fs::read_to_string(engine.join("README.md")).unwrap_or_default();
        let engine = name(&engine);
        let found: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let is_local = NO_CONNECTIONS.contains(&engine.as_str());
        let wanted = SECTIONS.into_iter().filter(|section| !is_local || *section != "Connections");
        if !wanted.eq(found.iter().copied()) {
            complaints.push(format!("engines/{engine}/README.md: its sections are {found:?}"));
        }
    }
    no_complaints(complaints);
}

#[test]
fn no_line_is_too_long() {
    let mut complaints = Vec::new();
    let is_ours = |path: &str| {
        [".rs", ".lua", ".sql"].iter().any(|end| path.ends_with(end)) || path.starts_with("scripts/")
    };
    for (path, text) in files_below("").filter(|(path, text)| is_ours(path) && !super::is_generated(text)) {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.chars().count() > LINE_WIDTH) {
            let complaint = format!("{path}:{}: {} characters", number + 1, line.chars().count());
            complaints.push((path.clone(), complaint));
        }
    }
    except(LINES_LEFT, complaints);
}

/// The caller's runtime may have no timers; `Clock` takes the background's.
#[test]
fn timers_are_the_backgrounds() {
    const TIMERS: [&str; 4] = ["sleep", "sleep_until", "timeout", "timeout_at"];
    let mut complaints = Vec::new();
    for folder in ["crates/core/src/", "crates/client/src/", "crates/lockkeeper/src/", "engines/"] {
        let is_code = |path: &str| path.contains("/src/") && path.ends_with(".rs") && !path.contains("tests");
        for (path, text) in
            files_below(folder).filter(|(path, _)| is_code(path) && !path.ends_with("/clock.rs"))
        {
            let code = text.split("\n#[cfg(test)]\nmod ").next().expect("one part").lines();
            for line in code.map(str::trim).filter(|line| !line.starts_with("//")) {
                let rest = line.split("tokio::time::").nth(1).unwrap_or_default();
                if rest.split(|c: char| !c.is_alphabetic() && c != '_').any(|name| TIMERS.contains(&name)) {
                    complaints.push(format!("{path}: use the timers of `Clock`: {line}"));
                }
            }
        }
    }
    no_complaints(complaints);
}

#[test]
fn every_lua_script_is_checked() {
    let mut complaints = Vec::new();
    for (path, _) in files_below("").filter(|(path, _)| path.ends_with(".lua")) {
        let folders = Path::new(&path).ancestors().skip(1);
        if !folders.map(|folder| root().join(folder).join(".luacheckrc")).any(|settings| settings.exists()) {
            let area = path.split('/').take(2).collect::<Vec<_>>().join("/");
            complaints.push((area, format!("{path}: no folder above it has a .luacheckrc")));
        }
    }
    except(LUA_LEFT, complaints);
}
